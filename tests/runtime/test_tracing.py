"""Traces: nothing unless wanted, a draw that no client can move, and nobody who ever waits.

What is sent is read from a real collector's side of the connection.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kvairlock.core.errors import Misuse
from kvairlock.core.terms import Incarnation, NodeName, Peer, Role
from kvairlock.runtime.settings import SettingsWrong, parse
from kvairlock.runtime.traces import export, opening
from kvairlock.runtime.traces.export import Export
from kvairlock.runtime.traces.tracer import NO_SPAN, UNTRACED
from kvairlock.runtime.tracing_settings import ClientTrace, TracingSettings
from tests.otlp import Collector, collecting

SEED = 20261201
PEER = Peer(NodeName("gateway"), Role.GATEWAY, Incarnation("g-1"))
TRACE, SPAN = "a1" * 16, "b2" * 8
THEIRS = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw from one seed, so that a share is the same share in each run."""
    print(f"seed {SEED}")
    monkeypatch.setattr("secrets.randbelow", random.Random(SEED).randrange)


@pytest.fixture
def silence() -> Iterator[str]:
    """The URL of somebody who takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"


def traced(url: str, count: int = 1, *client: str, **more: object) -> int:
    """Begin and end `count` requests; return how many of them were traced."""
    tracer = Export(TracingSettings(endpoint=url, **more), PEER)  # type: ignore[arg-type]
    spans = [tracer.request("request", client) for _ in range(count)]
    for span in spans:
        if span is not None:
            span.end()
    tracer.close()
    return sum(span is not None for span in spans)


# Wanted or not


def test_without_an_endpoint_nothing_is_traced() -> None:
    tracer = opening.open_tracer(TracingSettings(), PEER)
    assert tracer is UNTRACED
    assert tracer.request("request", (THEIRS,)) is None
    assert tracer.under(THEIRS, "decode") is None
    assert tracer.dropped == 0
    tracer.close()


def test_what_is_not_traced_has_no_context_for_others() -> None:
    span = NO_SPAN.child("attempt")
    span.note("anything", 1)
    span.fail("anything")
    span.end()
    assert span.context == ""


def test_who_traces_nothing_never_loads_the_sdk() -> None:
    code = (
        "import sys; import kvairlock.gateway.__main__, kvairlock.node.__main__; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_without_the_extra_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("opentelemetry", "kvairlock.runtime.traces.export")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "kvairlock.runtime.traces.sending")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(opening.TracingUnavailable, match=r"pip install 'kvairlock\[otel\]'"):
        opening.open_tracer(TracingSettings(endpoint="http://127.0.0.1:4318/v1/traces"), PEER)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('endpoint = "collector:4318"', "tracing.endpoint must be an http or https URL"),
        ('endpoint = "grpc://collector:4317"', "tracing.endpoint must be an http or https URL"),
        ('endpoint = "http:///v1/traces"', "with a host"),
        ('endpoint = "http://host:port/"', "tracing.endpoint is no URL"),
        ('endpoint = "http://me:secret@host/"', "must hold no user or password"),
        ("sampled_share = 1.5", "tracing.sampled_share"),
        ("sampled_share = -0.1", "tracing.sampled_share"),
        ("queue_max = 0", "tracing.queue_max"),
        ('client = "trusted"', "tracing.client"),
        ("samples = 1", "samples"),
    ],
)
def test_settings_that_make_no_sense_are_refused(line: str, why: str) -> None:
    with pytest.raises(SettingsWrong) as caught:
        parse(f"[tracing]\n{line}\n")
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)


# The draw


def test_a_share_of_nothing_traces_nothing_whatever_the_client_says(collector: Collector) -> None:
    assert traced(collector.url, 1_000, THEIRS, sampled_share=0) == 0
    assert collector.raw == b""


def test_a_share_of_one_traces_every_request(collector: Collector) -> None:
    assert traced(collector.url, 100) == 100
    assert len(collector.named("request")) == 100


@pytest.mark.usefixtures("draws")
@pytest.mark.parametrize("header", ["", THEIRS, UNSAMPLED, f"00-{'0' * 31}1-{SPAN}-01"])
def test_no_client_moves_the_draw(collector: Collector, header: str) -> None:
    """Neither its flag nor a trace id that it has chosen: a ratio of ids would let it choose."""
    client = (header,) if header else ()
    found = traced(collector.url, 4_000, *client, sampled_share=0.25)
    assert 850 < found < 1_150


# The client's own trace


def test_the_trace_of_a_client_is_continued_where_that_is_set(collector: Collector) -> None:
    traced(collector.url, 1, THEIRS, client=ClientTrace.PARENT)
    span = collector.one("request")
    assert (span.trace, span.parent, span.links) == (TRACE, SPAN, ())


def test_the_trace_of_a_client_is_only_named_unless_settings_say_more(collector: Collector) -> None:
    traced(collector.url, 1, THEIRS)
    span = collector.one("request")
    assert span.trace != TRACE
    assert (span.parent, span.links) == ("", (TRACE,))


def test_the_trace_of_a_client_is_ignored_where_that_is_set(collector: Collector) -> None:
    traced(collector.url, 1, THEIRS, client=ClientTrace.IGNORED)
    span = collector.one("request")
    assert span.trace != TRACE
    assert (span.parent, span.links) == ("", ())


@pytest.mark.parametrize(
    "client",
    [
        ("",),
        ("nonsense",),
        (THEIRS.upper(),),
        (f"ff-{TRACE}-{SPAN}-01",),
        (f"00-{'0' * 32}-{SPAN}-01",),
        (f"00-{TRACE}-{'0' * 16}-01",),
        (f"00-{TRACE}-{SPAN}",),
        (f"cc-{TRACE}-{SPAN}-01-{'x' * 200}",),
        (THEIRS, THEIRS),
        ("é" * 55,),
    ],
    ids=lambda client: client[0][:20] + f" x{len(client)}",
)
def test_a_header_that_is_none_begins_a_trace_of_our_own(
    collector: Collector, client: tuple[str, ...]
) -> None:
    traced(collector.url, 1, *client)
    span = collector.one("request")
    assert span.trace != TRACE
    assert span.parent == ""


# Between processes


def test_a_context_of_another_process_is_continued_if_it_is_sampled(collector: Collector) -> None:
    tracer = Export(TracingSettings(endpoint=collector.url), PEER)
    assert tracer.under(UNSAMPLED, "decode") is None
    assert tracer.under("", "decode") is None
    assert tracer.under("r/1", "decode") is None
    span = tracer.under(THEIRS, "decode")
    assert span is not None
    child = span.child("decode.queue")
    assert child.context.startswith(f"00-{TRACE}-")
    child.end()
    span.end()
    tracer.close()
    decode, queue = collector.one("decode"), collector.one("decode.queue")
    assert (decode.trace, decode.parent) == (TRACE, SPAN)
    assert (queue.trace, queue.parent) == (TRACE, decode.id)


def test_only_what_the_table_has_can_be_said_of_a_span(collector: Collector) -> None:
    tracer = Export(TracingSettings(endpoint=collector.url), PEER)
    span = tracer.request("request", ())
    assert span is not None
    with pytest.raises(Misuse, match=r"no span `request` has the attribute tenant"):
        span.note("tenant", "acme")
    tracer.close()


def test_a_process_says_which_of_all_it_is(collector: Collector) -> None:
    traced(collector.url)
    resource = collector.one("request").resource
    assert resource["service.namespace"] == "kvairlock"
    assert resource["service.name"] == "kvairlock-gateway"
    assert resource["service.instance.id"] == "g-1"
    assert resource["kvairlock.node"] == "gateway"


# Nobody waits


def test_spans_that_nobody_takes_are_counted(collector: Collector) -> None:
    collector.status = 400
    tracer = Export(TracingSettings(endpoint=collector.url), PEER)
    for _ in range(7):
        span = tracer.request("request", ())
        assert span is not None
        span.end()
    tracer.close()
    assert tracer.dropped == 7


def test_a_collector_that_does_not_answer_costs_neither_time_nor_memory(
    silence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "FLUSH_S", 0.2)
    tracer = Export(TracingSettings(endpoint=silence, queue_max=50), PEER)
    began_s = time.monotonic()
    for _ in range(2_000):
        span = tracer.request("request", ())
        assert span is not None
        span.end()
    assert time.monotonic() - began_s < 5, "each try of a batch may take 5 s"
    assert tracer.dropped == 1_950, "all but those that there was room for"
    began_s = time.monotonic()
    tracer.close()
    assert time.monotonic() - began_s < 3
    assert tracer.dropped == 2_000
