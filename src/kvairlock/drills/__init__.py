"""Drills: running processes, driven from outside by command line and HTTP, shown to leak or not."""
