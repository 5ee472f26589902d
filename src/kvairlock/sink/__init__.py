"""Where evidence goes."""
