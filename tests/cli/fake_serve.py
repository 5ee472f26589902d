"""The real command line, with fake processes behind `serve`. Arguments are those of `kvairlock`.

FAKE_PUBLISHED is JSON: a model that can be fetched beside those that really can.
"""

import os
import sys
from pathlib import Path

import msgspec

from kvairlock.cli import main, serve
from kvairlock.cli.stack import Programs
from kvairlock.engine.store import PUBLISHED, Published

FAKE = (sys.executable, "-S", str(Path(__file__).with_name("fake_process.py")))

serve.PROGRAMS = Programs(FAKE, FAKE)
if "FAKE_PUBLISHED" in os.environ:
    fake = msgspec.json.decode(os.environ["FAKE_PUBLISHED"], type=Published)
    PUBLISHED[fake.name] = fake
main()
