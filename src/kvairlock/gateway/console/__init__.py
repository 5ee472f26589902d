"""The operator's console: what the whole stack does now, live, on one page of the gateway."""

CONSOLE = "/console"
"""Where it is."""
