"""Drills carried out: on stacks of their own, or on a deployment from outside."""
