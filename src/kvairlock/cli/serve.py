"""`kvairlock serve`: a gateway, prefill and decode nodes as processes of this machine."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import anyio
import msgspec
import typer

from kvairlock.cli import config, places
from kvairlock.cli.child import Ready, StartFailed
from kvairlock.cli.models import provide
from kvairlock.cli.output import Status, fail, note, say, trouble
from kvairlock.cli.progress import StackView
from kvairlock.cli.stack import Programs, Stack
from kvairlock.cli.supervisor import Outcome, Plan, Times, supervise
from kvairlock.engine.model import RECALL, served_name
from kvairlock.engine.store import PUBLISHED
from kvairlock.gateway.console import CONSOLE
from kvairlock.gateway.keys import ApiKeys
from kvairlock.metrics.table import PATH as METRICS
from kvairlock.runtime import lifetime
from kvairlock.runtime.secrets import write_private
from kvairlock.runtime.settings import GATEWAY_NAME, Settings, located_model

PROGRAMS = Programs()
FIRST_TENANT = "default"
RECALLING = {"prompt": "the code is 4711. what is it? the code is", "max_tokens": 6}
CHATTING = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}


class ReadyFile(msgspec.Struct, frozen=True):
    """What `--ready-file` holds once all processes are ready, and again after each new start.

    Args:
        url: Where the gateway listens.
        pids: Process ids by name.
        incarnations: The life that each process is in, by name.
        run: The run directory, with the sockets.
        evidence: The directory of the evidence.
        metrics: Where each process shows its metrics, by name.
    """

    url: str
    pids: dict[str, int]
    incarnations: dict[str, str]
    run: str
    evidence: str
    metrics: dict[str, str]


def serve(
    config_file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings (TOML); defaults if left out."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.gguf",
            help="Model instead of the settings' one; `kvairlock models list` shows names. "
            "One that can be fetched and is not here is fetched.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of the gateway; 0 takes a free one."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="API keys; the state directory's if left out."),
    ] = None,
    cluster_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Cluster keys; the state directory's if left out."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keys and evidence; $XDG_STATE_HOME/kvairlock or ~/.local/state/kvairlock.",
        ),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Evidence; DIR/evidence of the state if left out."),
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Written as JSON when all is up, and after each new start of a process: "
            "url, pids, incarnations, run, evidence, metrics.",
        ),
    ] = None,
) -> None:
    """Start a gateway, prefill and decode nodes, and serve the OpenAI API until Ctrl-C.

    The first start makes the keys it needs and shows the API key, once.
    """
    settings = _effective(config.read(config_file), model, port)
    if settings.model in PUBLISHED:
        provide(PUBLISHED[settings.model])
    home = (state or places.default_state()).absolute()
    ring = places.cluster_ring(cluster_key, home)
    keys_file = _keys(keys, home)
    # Inherited: pages of all tenants are in the memory of the processes that are started here.
    lifetime.protect_memory()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    days = settings.evidence.retention_days
    pseudonyms = places.pseudonyms(ring, home, days, int(time.time()))
    where = (evidence or home / places.EVIDENCE).absolute()
    where.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="kvairlock-") as run:
        stack = Stack(settings, ring, keys_file, home, where, Path(run), PROGRAMS)
        stack.write_evidence_key(pseudonyms)
        raise typer.Exit(_run(stack, ready_file))


def _effective(settings: Settings, model: str | None, port: int | None) -> Settings:
    """Return the settings with what the options say instead."""
    if model is not None:
        located = located_model(model, Path.cwd())
        settings = msgspec.structs.replace(settings, model=located)
    if port is not None:
        gateway = msgspec.structs.replace(settings.gateway, port=port)
        settings = msgspec.structs.replace(settings, gateway=gateway)
    return settings


def _keys(named: Path | None, home: Path) -> Path:
    """Return the file of API keys, and make and show a first key if there is none.

    The key is shown before anything starts: if a start fails it is not lost.
    """
    path = (named or home / places.KEYS_FILE).absolute()
    if path.exists():
        ApiKeys.load(path)
        return path
    if named is not None:
        fail(f"{path}: there is no such file", f"kvairlock keys add {FIRST_TENANT} --keys {named}")
    key = ApiKeys(path).issue(FIRST_TENANT, operator=True)
    say(f"A first API key, of tenant `{FIRST_TENANT}`; it is shown this once:\n")
    say(f"  export KVAIRLOCK_API_KEY={key}\n")
    return path


def _run(stack: Stack, ready_file: Path | None) -> Status:
    """Supervise a stack until it is stopped."""
    waves = stack.waves()
    stack.write_settings(stack.settings.gateway.port)
    if ready_file is not None:
        _make_way(ready_file)
    with StackView([spec.name for wave in waves for spec in wave]) as view:
        board = _Board(stack, view, ready_file)
        times = Times(start_ms=stack.settings.limits.start_ms)
        plan = Plan(waves, times, stack.settings.restart, view, board.up)
        outcome = anyio.run(_supervised, plan, stack)
        if not isinstance(outcome, StartFailed):
            return _ended(outcome, ready_file)
    # A process that ends with this status says that what it was given is wrong.
    wrong = outcome.returncode == Status.WRONG
    fail(str(outcome), _advice(stack.settings, outcome), Status.WRONG if wrong else Status.NOT_OK)


async def _supervised(plan: Plan, stack: Stack) -> Outcome | StartFailed:
    """Supervise, and keep the evidence key's files up to date meanwhile."""
    files = (stack.state / places.EVIDENCE_KEY_FILE, stack.evidence_key)
    outcome: Outcome | StartFailed
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(places.keep_pseudonyms, files)
        try:
            outcome = await supervise(plan)
        except StartFailed as error:  # as it is, not in a group
            outcome = error
        tasks.cancel_scope.cancel()
    return outcome


def _make_way(ready_file: Path) -> None:
    """Remove what an earlier run left, and see to it that ours can be written."""
    ready_file.unlink(missing_ok=True)
    if not os.access(ready_file.parent, os.W_OK):
        fail(f"{ready_file}: cannot be written", "name a file in a directory that exists")


def _ended(outcome: Outcome, ready_file: Path | None) -> Status:
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)
    if outcome is Outcome.STOPPED:
        return Status.OK
    note("kvairlock: every process has ended, and `restart = false`")
    return Status.NOT_OK


def _advice(settings: Settings, failed: StartFailed) -> str:
    if failed.returncode is None:
        return f"give it longer (limits.start_ms = {2 * settings.limits.start_ms}), or see above"
    if str(failed).startswith(f"{GATEWAY_NAME} "):
        return "see what it says above; is the port taken? (`--port 0` takes a free one)"
    return "see what it says above; `kvairlock config check FILE` checks settings"


class _Board:
    """Tells people and scripts that the stack is up."""

    def __init__(self, stack: Stack, view: StackView, ready_file: Path | None) -> None:
        self._stack = stack
        self._view = view
        self._file = ready_file
        self._told = ""

    def up(self, ready: Mapping[str, Ready]) -> None:
        """All processes are ready, at first or again."""
        url = ready[GATEWAY_NAME].url or ""
        if self._file is not None:
            self._write(self._file, url, ready)
        if self._told != url:
            self._told = url
            self._view.settle()
            self._stack.write_settings(urlsplit(url).port or 0)
            say(_welcome(url, self._stack.settings.model, metrics_of(ready)))

    def _write(self, file: Path, url: str, ready: Mapping[str, Ready]) -> None:
        said = ReadyFile(
            url=url,
            pids={name: r.pid for name, r in ready.items()},
            incarnations={name: r.incarnation for name, r in ready.items()},
            run=str(self._stack.run),
            evidence=str(self._stack.evidence),
            metrics=metrics_of(ready),
        )
        try:
            write_private(file, msgspec.json.encode(said).decode() + "\n")
        except OSError as error:
            trouble(f"{file}: {error.strerror}; scripts that read it do not see this start")


def metrics_of(ready: Mapping[str, Ready]) -> dict[str, str]:
    """Return where each process shows its metrics, by name: the gateway beside its API."""
    told = {name: said.metrics for name, said in ready.items()}
    told[GATEWAY_NAME] = f"{ready[GATEWAY_NAME].url}{METRICS}"
    return {name: where for name, where in told.items() if where}


def _welcome(url: str, model: str, metrics: Mapping[str, str]) -> str:
    auth = '-H "Authorization: Bearer $KVAIRLOCK_API_KEY"'
    path, asks = ("completions", RECALLING) if model == RECALL else ("chat/completions", CHATTING)
    body = shlex.quote(json.dumps({"model": served_name(model), **asks}))
    return (
        f"kvairlock is up at {url} (Ctrl-C stops it)\n\n"
        f"  models  curl -s {url}/v1/models {auth}\n"
        f"  ask     curl -s {url}/v1/{path} {auth} \\\n"
        f"            -H 'Content-Type: application/json' -d {body}\n"
        f"  metrics {'  '.join(metrics.values())}\n"
        f"  console {url}{CONSOLE}, with an operator's key\n"
    )
