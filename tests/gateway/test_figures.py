"""What the gateway shows of nodes that come and go, and of what is not wanted of it."""

from __future__ import annotations

import pytest

from .stacks import Stack, stack, until


def shown(running: Stack) -> dict[str, float]:
    """Every series of the gateway with its value."""
    lines = running.http.get("/metrics").text.splitlines()
    return {
        series: float(value)
        for series, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def test_a_node_that_is_lost_is_counted_and_what_it_said_is_not_shown_as_if_it_were_there() -> None:
    node = '{node="decode-0",role="decode"}'
    with stack() as running:
        figures = shown(running)
        assert figures[f"kvairlock_node_losses_total{node}"] == 0
        assert any(name.startswith("kvairlock_pages{") for name in figures)
        running.nodes.stop("decode-0")
        until(lambda: shown(running)[f"kvairlock_node_up{node}"] == 0)
        figures = shown(running)
        about = {name for name in figures if 'node="decode-0"' in name}
        assert about == {f"kvairlock_node_losses_total{node}", f"kvairlock_node_up{node}"}
        assert figures[f"kvairlock_node_losses_total{node}"] == 1
        assert figures['kvairlock_node_up{node="prefill-0",role="prefill"}'] == 1


@pytest.mark.parametrize(
    ("settings", "promised", "retried"),
    [("", False, True), ("[commitment]\ncontext_tokens = 64\n[retries]\nburst = 0\n", True, False)],
    ids=["as it comes", "a promise, and no second attempts"],
)
def test_what_nothing_is_promised_of_or_never_happens_has_no_figure(
    settings: str, promised: bool, retried: bool
) -> None:
    with stack("[gateway]\nport = 0\n" + settings) as running:
        names = shown(running).keys()
        assert ("kvairlock_commitment_violations" in names) is promised
        assert ("kvairlock_retry_budget" in names) is retried
