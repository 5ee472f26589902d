"""The report of a run as one page of HTML that needs nothing else."""
