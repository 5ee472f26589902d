"""The fault matrix: each process crashed, stopped or cut off at each stage."""
