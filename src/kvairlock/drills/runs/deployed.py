"""Carries out drills on a deployment: those that can be, each once, with all guards on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.library.checks import characters_of
from kvairlock.drills.library.drill import Drill, Limits, Mode, Run
from kvairlock.drills.library.steps import (
    Answered,
    Ask,
    Crowd,
    Fills,
    Leave,
    Look,
    Recorded,
    Resume,
    Stop,
)
from kvairlock.drills.library.topology import Topology
from kvairlock.drills.runs.cleanup import asked_again
from kvairlock.drills.runs.deployment import Deployment, Facts
from kvairlock.drills.runs.once import carry_out
from kvairlock.drills.runs.player import Site
from kvairlock.drills.runs.rows import Cleaned, DrillRun, Row, RunEvidence, Skipped
from kvairlock.drills.runs.runner import Progress
from kvairlock.engine.model import RECALL


def run_on(
    deployment: Deployment, drills: Sequence[Drill], seed: int, progress: Progress
) -> DrillRun:
    """Carry out the drills that can be carried out on a deployment.

    Args:
        deployment: Where.
        drills: Which.
        seed: What the canaries are drawn from.
        progress: Is told how far it has come.

    Raises:
        DeploymentWrong: It does not answer, the key is no operator's, or guards are off.
    """
    rows: list[Row] = []
    cleaned: list[Cleaned] = []
    skipped: list[Skipped] = []
    for number, drill in enumerate(drills, start=1):
        # Asked each time: a drill in which a node breaks the protocol may have closed its route.
        why = why_not(drill, deployment, deployment.facts())
        if why is not None:
            skipped.append(Skipped(drill.name, why))
            continue
        run = Run(drill, Mode.GUARDED if drill.shadows else Mode.ALONE)
        progress.began(number, len(drills), run.title)
        site = deployment.site(drill.tenants)
        once = carry_out(run, site, Canaries(f"{seed} {run.title}"))
        rows.append(once.row)
        cleaned.append(_asked_again(drill, site, once.answered))
        progress.ended(once.row)
    evidence = () if deployment.evidence is None else (_evidence(deployment.evidence, rows),)
    return DrillRun(seed, tuple(rows), tuple(skipped), tuple(cleaned), evidence)


def why_not(drill: Drill, deployment: Deployment, facts: Facts) -> str | None:
    """Return why a drill cannot be carried out on a deployment, or None if it can.

    Args:
        drill: The drill.
        deployment: Where, and what was agreed on.
        facts: What it says of itself.
    """
    if facts.model != RECALL:
        return f"the model there is {facts.model}; a canary is sure to show with {RECALL} only"
    if len(drill.tenants) > len(deployment.tenants):
        return f"it needs {len(drill.tenants)} tenants; there are {len(deployment.tenants)}"
    return _beyond(drill, deployment.limits, facts) or _out_of_reach(drill, deployment, facts)


def _beyond(drill: Drill, agreed: Limits, facts: Facts) -> str | None:
    """Return what of a drill is beyond what was agreed on for this deployment."""
    prompts = [_length(ask, facts) for ask in drill.asks]
    least, most = agreed.prompt_tokens
    figures = (
        ("tenants", len(drill.tenants), agreed.tenants_max),
        ("requests", len(drill.asks), agreed.requests_max),
        ("seconds", drill.limits.seconds_max, agreed.seconds_max),
        ("prompt tokens", max(prompts), most),
    )
    for what, needed, limit in figures:
        if needed > limit:
            return f"it takes up to {needed} {what}; agreed on are {limit}"
    if min(prompts) < least:
        return f"it has prompts of {min(prompts)} tokens; agreed on are {least} at least"
    return None


def _length(ask: Ask, facts: Facts) -> int:
    if ask.fills is Fills.PROMISE:
        return facts.promise_tokens + ask.over - ask.max_tokens
    return characters_of(ask)


def _out_of_reach(drill: Drill, deployment: Deployment, facts: Facts) -> str | None:
    """Return what a drill does that cannot be done from here."""
    if not _steers(drill):
        return None
    if any(isinstance(step, Stop | Resume | Look) for step in drill.steps):
        return "it stops processes, or looks into them"
    if drill.stack != Topology():
        return "it needs a stack of its own: other nodes, pages or shares"
    if facts.routes_closed:
        return f"a route is closed there: {facts.routes_closed[0]}"
    if not facts.can_steer:
        return "it needs drill mode, and tenants whose keys are operators'"
    missing = sorted(set(drill.stack.nodes) - set(facts.nodes))
    if missing:
        return f"no node is called {missing[0]} there"
    if deployment.evidence is None and any(isinstance(s, Recorded) for s in drill.steps):
        return "it waits for evidence, which is not at hand"
    return None


def _steers(drill: Drill) -> bool:
    """Whether a drill does more than ask, wait and leave: then its stack matters too."""
    plain = all(isinstance(step, Ask | Crowd | Answered | Leave) for step in drill.steps)
    return not plain or any(ask.route or ask.ticket_of for ask in drill.asks)


def _asked_again(drill: Drill, site: Site, answered: Sequence[Marked]) -> Cleaned:
    """Ask the last prompt of each tenant again."""
    last = {marked.tenant: marked for marked in answered}
    return asked_again(f"deployment, after {drill.name}", [drill.name], site.client, last.values())


def _evidence(folder: Path, rows: Sequence[Row]) -> RunEvidence:
    names = ", ".join(row.drill for row in rows)
    return RunEvidence(f"{names}: all guards on, on a deployment", folder)
