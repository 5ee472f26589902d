"""What faults cost: loads of one stack, compared in one run."""
