"""Protocol: the hand-over as one table, its verdict, and the machine of each end."""
