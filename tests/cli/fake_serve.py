"""The real command line, with fake processes behind `serve`. Arguments are those of `kvairlock`."""

import sys
from pathlib import Path

from kvairlock.cli import main, serve
from kvairlock.cli.stack import Programs

FAKE = (sys.executable, "-S", str(Path(__file__).with_name("fake_process.py")))

serve.PROGRAMS = Programs(FAKE, FAKE)
main()
