"""`python -m kvairlock` is the `kvairlock` command."""

from kvairlock.cli import main

main()
