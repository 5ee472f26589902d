"""Stands for a node or a gateway: the process contract, and faults on demand.

FAKE_PLAN is JSON, process name to fault: `wrong` (a message, exit status 2), `mute` (never ready),
`deaf` (ignores SIGTERM), `twice` (fails its second start only). FAKE_JOURNAL is a file that gets a
line per event: NAME EVENT PID.
"""

import argparse
import json
import os
import select
import signal
import sys
from pathlib import Path


def main() -> None:
    options = argparse.ArgumentParser()
    for option in ("--settings", "--run", "--evidence", "--evidence-key", "--keys", "--state"):
        options.add_argument(option)
    options.add_argument("--name", default="gateway")
    given = options.parse_args()
    name: str = given.name
    fault = json.loads(os.environ.get("FAKE_PLAN", "{}")).get(name, "")
    journal = Path(os.environ["FAKE_JOURNAL"])

    def note(event: str) -> None:
        with journal.open("a") as file:
            file.write(f"{name} {event} {os.getpid()}\n")

    def ended(*_: object) -> None:
        note("sigterm")
        if fault != "deaf":
            sys.exit(0)

    signal.signal(signal.SIGTERM, ended)
    earlier = journal.read_text().count(f"{name} start ") if journal.exists() else 0
    note("start")
    if fault == "wrong" or (fault == "twice" and earlier == 1):
        print(f"{name}: these settings cannot be used", file=sys.stderr)
        sys.exit(2)
    if fault != "mute":
        print(json.dumps(hello(name, given.settings)), flush=True)
        note("ready")
    print(f"a log line of {name}", file=sys.stderr, flush=True)
    while True:
        # PEP 475: a signal whose handler returns does not end the wait.
        select.select([sys.stdin], [], [])
        if not os.read(0, 1):
            note("orphaned")
            return


def hello(name: str, settings: str) -> dict[str, object]:
    life: dict[str, object] = {"ready": name, "pid": os.getpid(), "incarnation": f"i{os.getpid()}"}
    if name != "gateway":
        return {**life, "role": name.split("-")[0], "tokens": 8192}
    port = next(
        line.split(" = ")[1]
        for line in Path(settings).read_text().splitlines()
        if line.startswith("port = ")
    )
    taken = port if port != "0" else "54321"
    return {**life, "role": "gateway", "url": f"http://127.0.0.1:{taken}"}


main()
