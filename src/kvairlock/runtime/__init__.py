"""What stands between the core and a running process: ports, turns, hosts, settings."""
