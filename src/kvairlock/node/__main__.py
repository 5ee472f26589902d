"""`python -m kvairlock.node`: one node process, started by `kvairlock serve`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from kvairlock.core.errors import KvairlockError
from kvairlock.core.node import LedgerBroken
from kvairlock.node.process import serve
from kvairlock.runtime import lifetime
from kvairlock.runtime.logs import log_to_stderr
from kvairlock.runtime.secrets import load_keyring, load_pseudonyms
from kvairlock.runtime.settings import load

WRONG, BROKEN = 2, 70


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kvairlock.node", description=__doc__)
    parser.add_argument("--settings", type=Path, required=True, help="TOML settings of the stack")
    parser.add_argument("--name", required=True, help="which node of the settings to be")
    parser.add_argument("--run", type=Path, required=True, help="folder of the unix sockets")
    parser.add_argument("--evidence", type=Path, required=True, help="folder of the evidence")
    parser.add_argument("--cluster-key", type=Path, help="file of the cluster's keys")
    parser.add_argument("--evidence-key", type=Path, help="file of the evidence key")
    return parser.parse_args()


def main() -> int:
    """Run a node; returns its exit status."""
    given = _arguments()
    log_to_stderr(given.name)
    lifetime.protect_memory()
    lifetime.raise_descriptors()
    try:
        ring = load_keyring(given.cluster_key)
        pseudonyms = load_pseudonyms(given.evidence_key, ring)
        settings = load(given.settings)
        return serve(settings, given.name, given.run, given.evidence, ring, pseudonyms)
    except LedgerBroken as broken:
        sys.stderr.write(f"{given.name}: {broken}\n")
        return BROKEN
    except (KvairlockError, OSError, ValueError) as error:
        sys.stderr.write(f"{given.name}: {error}\n")
        return WRONG


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the engine and of the transport hold nothing that must be said any more.
    os._exit(status)
