"""Drills as data: what a drill file says, those that are shipped, and which a change calls for."""
