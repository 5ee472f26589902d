"""`python -m kvairlock.gateway`: start one gateway process, or say in one line why not."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from pathlib import Path

import anyio

from kvairlock.core.errors import KvairlockError
from kvairlock.core.terms import Peer, Role
from kvairlock.engine.model import UnknownModel, load_tokenizer
from kvairlock.gateway.breaker_file import StateUnusable
from kvairlock.gateway.keys import ApiKeys
from kvairlock.gateway.server import Process, listen, serve
from kvairlock.runtime import lifetime
from kvairlock.runtime.logs import log_to_stderr
from kvairlock.runtime.secrets import load_keyring, load_pseudonyms
from kvairlock.runtime.settings import GATEWAY_NAME, load
from kvairlock.runtime.traces.opening import open_tracer
from kvairlock.sink.recorder import Recorder

CANNOT_START = 2


def main() -> int:
    """Run a gateway until it is told to stop; return the exit status."""
    arguments = _arguments()
    _keep_prompts_in()
    log_to_stderr(GATEWAY_NAME)
    try:
        process = _prepare(arguments)
        pseudonyms = load_pseudonyms(arguments.evidence_key, process.ring)
        keeping = process.settings.evidence
        evidence = Recorder(process.evidence, process.peer, process.ring, pseudonyms, keeping)
    except (KvairlockError, UnknownModel, OSError) as error:
        print(f"kvairlock.gateway: cannot start: {error}", file=sys.stderr)
        return CANNOT_START
    with closing(process.tracer):
        return _serve(process, evidence)


def _serve(process: Process, evidence: Recorder) -> int:
    try:
        anyio.run(serve, process, evidence, lifetime.say_ready)
    except StateUnusable as error:
        evidence.close()
        print(f"kvairlock.gateway: cannot start: {error}", file=sys.stderr)
        return CANNOT_START
    except BaseException:
        evidence.close(in_order=False)
        raise
    evidence.close()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kvairlock.gateway", description=__doc__)
    parser.add_argument("--settings", type=Path, required=True, help="TOML file of the stack")
    parser.add_argument("--run", type=Path, required=True, help="folder of the nodes' sockets")
    parser.add_argument("--state", type=Path, required=True, help="folder of what outlives it")
    parser.add_argument("--evidence", type=Path, required=True, help="folder for evidence")
    parser.add_argument("--keys", type=Path, required=True, help="file of API keys")
    parser.add_argument("--cluster-key", type=Path, help="file of the cluster's keys")
    parser.add_argument("--evidence-key", type=Path, help="file of the evidence key")
    return parser.parse_args()


def _prepare(arguments: argparse.Namespace) -> Process:
    settings, incarnation = load(arguments.settings), lifetime.fresh_incarnation()
    me = Peer(GATEWAY_NAME, Role.GATEWAY, incarnation)
    return Process(
        settings=settings,
        tokenizer=load_tokenizer(settings.model),
        ring=load_keyring(arguments.cluster_key),
        keys=ApiKeys.load(arguments.keys),
        run=arguments.run,
        state=arguments.state,
        evidence=arguments.evidence,
        listener=listen(settings.gateway.host, settings.gateway.port),
        incarnation=incarnation,
        tracer=open_tracer(settings.tracing, me),
    )


def _keep_prompts_in() -> None:
    """No core files, and nothing that others can read: memory holds prompts."""
    lifetime.protect_memory()
    lifetime.raise_descriptors()
    os.umask(0o077)


if __name__ == "__main__":
    sys.exit(main())
