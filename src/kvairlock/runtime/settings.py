"""Settings as one table of typed fields: TOML is checked against it, docs and schema come from it.

Unknown names are errors: a setting with a typing mistake must not silently be the default.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kvairlock.core.errors import KvairlockError, Reason
from kvairlock.core.guards import Guard, GuardSet
from kvairlock.core.promise.commitment import Commitment, LengthClass, Reach
from kvairlock.core.promise.conditions import ATTRIBUTABLE, COUNTED, Conditions
from kvairlock.core.promise.waivers import Waiver
from kvairlock.core.terms import LandingPolicy, NodeName, Role, Route
from kvairlock.runtime.evidence_settings import EvidenceSettings
from kvairlock.runtime.metrics_settings import MetricsPort, MetricsSettings
from kvairlock.runtime.tracing_settings import TracingSettings
from kvairlock.runtime.waiver_settings import WaiverSettings

Threads = Annotated[
    int,
    Meta(
        ge=0,
        description="Threads of its linear algebra; 0 divides this machine's cores among the "
        "nodes of the stack.",
    ),
]
Name = Annotated[
    str,
    Meta(pattern="^[a-z][a-z0-9-]{0,31}$", description="Name of the process, unique."),
]


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP front."""

    host: Annotated[str, Meta(description="Address to listen on; loopback unless you say so.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65535, description="Port; 0 takes a free one.")] = 8000
    body_bytes_max: Annotated[
        int, Meta(ge=1024, description="Largest request body, in bytes; more is 413.")
    ] = 1024 * 1024
    max_tokens_default: Annotated[
        int,
        Meta(
            ge=1,
            description="Tokens to generate when a completion does not say; fewer where the "
            "context has no room for them.",
        ),
    ] = 16
    chat_tokens_default: Annotated[int, Meta(ge=1, description="The same for a chat.")] = 256
    temperature_default: Annotated[
        float,
        Meta(
            ge=0,
            le=2,
            description="Temperature when a request does not say; 0 answers alike every time. The "
            "OpenAI API has 1.",
        ),
    ] = 0.0
    choices_max: Annotated[int, Meta(ge=1, description="Largest `n` of a request.")] = 8
    ticket_s: Annotated[
        int, Meta(ge=1, description="Seconds after which a request ticket is worthless.")
    ] = 180


class LengthClassSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One class of requests by length: how many of them are promised at one time."""

    name: Annotated[
        str, Meta(pattern="^[a-z][a-z0-9-]{0,31}$", description="Name of the class, unique.")
    ]
    context_tokens: Annotated[
        int, Meta(ge=1, description="Longest request of the class: prompt plus max_tokens.")
    ]
    concurrency: Annotated[
        int, Meta(ge=1, description="Requests of that length promised at one time.")
    ] = 1


class CommitmentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the service promises; never more is advertised than was measured."""

    context_tokens: Annotated[
        int,
        Meta(
            ge=0,
            description="Context window to advertise, in tokens (prompt plus max_tokens); 0 takes "
            "what was measured. Never more is advertised than the routes that are up now hold.",
        ),
    ] = 0
    output_tokens: Annotated[
        int,
        Meta(ge=0, description="Largest max_tokens of a request; 0 leaves it to the context."),
    ] = 0
    reach: Annotated[
        Reach,
        Meta(
            description="Which routes must hold what is promised: `tiered` routes requests by "
            "length, so one that holds it is enough; `every` promises no more than the smallest "
            "route that is up holds."
        ),
    ] = Reach.TIERED
    classes: Annotated[
        tuple[LengthClassSettings, ...],
        Meta(description="Classes of requests by length, each with its concurrency."),
    ] = ()
    fingerprints: Annotated[
        dict[str, str],
        Meta(
            description="Fingerprint that each node named here must report; another closes its "
            "routes, since what was checked is not what runs."
        ),
    ] = {}

    @property
    def promised(self) -> Commitment:
        """The commitment itself."""
        classes = (LengthClass(c.name, c.context_tokens, c.concurrency) for c in self.classes)
        return Commitment(
            context_tokens=self.context_tokens,
            output_tokens=self.output_tokens,
            reach=self.reach,
            classes=tuple(classes),
            fingerprints={NodeName(name): pinned for name, pinned in self.fingerprints.items()},
        )


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a route takes no more requests because of what its nodes did; see docs/breaker.md."""

    failures: Annotated[
        int,
        Meta(
            ge=1,
            description="Requests that failed by the doing of a route's nodes within `within_s`, "
            "after which its breaker opens.",
        ),
    ] = 3
    violations: Annotated[
        int,
        Meta(
            ge=0,
            description="Violations among them after which it opens already: what was handed over "
            "is not what anybody vouched for. 0 counts them like all failures.",
        ),
    ] = 1
    within_s: Annotated[int, Meta(ge=1, description="Seconds in which they count together.")] = 60
    reasons: Annotated[
        tuple[Reason, ...],
        Meta(
            description="Reasons of refusals that count; only those whose fault is a peer's or "
            "ours can. A broken invariant always counts."
        ),
    ] = COUNTED
    tenant_faults_per_min: Annotated[
        int,
        Meta(
            ge=0,
            description="Refusals that one tenant may cause per minute by requests that were its "
            "own fault, before it gets 429; 0 sets no limit. To leave is no fault.",
        ),
    ] = 0

    @property
    def conditions(self) -> Conditions:
        """The figures of the conditions."""
        reasons = frozenset(self.reasons)
        return Conditions(self.failures, self.violations, self.within_s * 1000, reasons)


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Second attempts of the gateway where a route was lost or full before anything was sent."""

    attempts_max: Annotated[
        int, Meta(ge=1, le=8, description="Attempts of one request, the first included.")
    ] = 2
    share: Annotated[
        float,
        Meta(ge=0, le=1, description="Retries allowed for each request that succeeded."),
    ] = 0.1
    burst: Annotated[
        int, Meta(ge=0, description="Retries that may be saved up, and that there are at first.")
    ] = 10


class PrefillSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One prefill node."""

    name: Name
    pages: Annotated[int, Meta(ge=1, description="Pages of the KV pool.")] = 512
    chunk_tokens: Annotated[
        int, Meta(ge=1, description="Prompt tokens computed in one go (chunked prefill).")
    ] = 256
    prefix_share: Annotated[
        float,
        Meta(ge=0, le=1, description="Largest share of the pool that finished prefixes may keep."),
    ] = 0.5
    threads: Threads = 0
    metrics_port: MetricsPort = 0


class DecodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decode node."""

    name: Name
    pages: Annotated[int, Meta(ge=1, description="Pages of the KV pool.")] = 1024
    landing: Annotated[
        LandingPolicy,
        Meta(description="How remote writes become pages; `direct` in drills only."),
    ] = LandingPolicy.COPY
    landing_pages: Annotated[
        int,
        Meta(ge=0, description="Pages that may be in windows at one time; 0 takes the pool's."),
    ] = 0
    tenant_share: Annotated[
        float,
        Meta(gt=0, le=1, description="Largest share of landing memory that one tenant may pin."),
    ] = 0.5
    batch_max: Annotated[int, Meta(ge=1, description="Choices in one decode step, at most.")] = 32
    queue_max: Annotated[
        int,
        Meta(
            ge=1,
            description="Requests that may wait for pages; when they do, the longest line gives "
            "way (429 or 503), see docs/fairness.md.",
        ),
    ] = 256
    recompute_tokens_per_min: Annotated[
        int,
        Meta(
            ge=0,
            description="Prompt tokens that this node may compute itself, per minute, where the "
            "evidence of prefill is missing (node lost, no receipt in time); 0 fails the request.",
        ),
    ] = 0
    threads: Threads = 0
    metrics_port: MetricsPort = 0


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deadlines of the stages and of silence, all in milliseconds."""

    queue_ms: Annotated[int, Meta(ge=1, description="Longest wait for pages.")] = 10_000
    prefill_ms: Annotated[
        int, Meta(ge=1, description="Longest wait of decode for the receipt.")
    ] = 120_000
    verdict_ms: Annotated[
        int, Meta(ge=1, description="Longest wait of prefill for the verdict, and for landing.")
    ] = 10_000
    decode_ms: Annotated[int, Meta(ge=1, description="Longest generation.")] = 300_000
    beat_ms: Annotated[int, Meta(ge=10, description="Time between two signs of life.")] = 250
    lost_ms: Annotated[
        int, Meta(ge=50, description="Silence after which a node counts as lost.")
    ] = 3_000
    start_ms: Annotated[int, Meta(ge=100, description="Longest start of a process.")] = 60_000


class DrillSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drill mode: faults on purpose. A node with a guard off refuses to start outside it."""

    enabled: Annotated[bool, Meta(description="Allow guards to be off and failpoints armed.")] = (
        False
    )
    guards_off: Annotated[
        tuple[Guard, ...], Meta(description="Guards that do not enforce; see docs/guards.md.")
    ] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole embedded stack."""

    model: Annotated[
        str,
        Meta(
            description="Model to serve: a name that `kvairlock models list` shows, or a GGUF file "
            "(NAME.gguf); a relative path starts at the folder of the settings file.",
        ),
    ] = "recall"
    page_tokens: Annotated[int, Meta(ge=1, le=1024, description="Token slots of a page.")] = 16
    restart: Annotated[
        bool, Meta(description="Start a process again that has died, as a new incarnation.")
    ] = True
    gateway: GatewaySettings = GatewaySettings()
    commitment: CommitmentSettings = CommitmentSettings()
    breaker: BreakerSettings = BreakerSettings()
    retries: RetrySettings = RetrySettings()
    metrics: MetricsSettings = MetricsSettings()
    prefill: tuple[PrefillSettings, ...] = (PrefillSettings(name="prefill-0"),)
    decode: tuple[DecodeSettings, ...] = (DecodeSettings(name="decode-0"),)
    limits: LimitSettings = LimitSettings()
    waiver: Annotated[
        tuple[WaiverSettings, ...],
        Meta(description="Permissions to check less for a time, one [[waiver]] for each."),
    ] = ()
    tracing: TracingSettings = TracingSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    drill: DrillSettings = DrillSettings()

    @property
    def guards(self) -> GuardSet:
        """How guards are set whatever the time is; what waivers relax is `Guarding`'s to say."""
        return GuardSet(frozenset(self.drill.guards_off))

    @property
    def waivers(self) -> tuple[Waiver, ...]:
        """The waivers themselves."""
        return tuple(waiver.made(self.routes) for waiver in self.waiver)

    @property
    def routes(self) -> tuple[Route, ...]:
        """All routes that requests may take."""
        return tuple(
            Route(NodeName(p.name), NodeName(d.name)) for p in self.prefill for d in self.decode
        )

    @property
    def nodes(self) -> dict[NodeName, Role]:
        """Names and roles of all nodes."""
        named = [(NodeName(p.name), Role.PREFILL) for p in self.prefill]
        return dict(named + [(NodeName(d.name), Role.DECODE) for d in self.decode])


class SettingsWrong(KvairlockError):
    """Settings that cannot be used; the message says where and why."""

    code = "settings_wrong"


GATEWAY_NAME = NodeName("gateway")
MODEL_FILES = ".gguf"
"""How the path of a model ends; everything else is a name."""


def parse(text: str) -> Settings:
    """Read settings from TOML.

    Raises:
        SettingsWrong: It is no TOML, a value is wrong or unknown, or values contradict.
    """
    try:
        settings = msgspec.convert(tomllib.loads(text), Settings)
    except tomllib.TOMLDecodeError as error:
        raise SettingsWrong(f"not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise SettingsWrong(str(error)) from None
    check(settings)
    return settings


def load(path: Path) -> Settings:
    """Read settings from a TOML file; a relative path in them starts at its folder.

    Raises:
        SettingsWrong: The file cannot be read or used.
    """
    try:
        settings = parse(path.read_text())
        return msgspec.structs.replace(settings, model=located_model(settings.model, path.parent))
    except OSError as error:
        raise SettingsWrong(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsWrong(f"{path}: not UTF-8 text") from None


def located_model(choice: str, folder: Path) -> str:
    """Return a choice of a model with its path made absolute, if it is a file.

    Args:
        choice: A model's name, or the path of a GGUF file.
        folder: Where a relative path starts.
    """
    if not choice.endswith(MODEL_FILES):
        return choice
    return str(folder.absolute() / Path(choice).expanduser())


def check(settings: Settings) -> None:
    """Refuse settings whose values contradict each other.

    Raises:
        SettingsWrong: The message names the setting.
    """
    if not settings.prefill or not settings.decode:
        raise SettingsWrong("a stack needs at least one [[prefill]] and one [[decode]]")
    names = [GATEWAY_NAME, *(p.name for p in settings.prefill), *(d.name for d in settings.decode)]
    if len(set(names)) != len(names):
        raise SettingsWrong("every process needs a name of its own (`gateway` is taken)")
    # A pattern's `$` also matches before a line's end.
    if any(name != name.strip() for name in names):
        raise SettingsWrong("a name has a line break at its end")
    if settings.limits.lost_ms <= 2 * settings.limits.beat_ms:
        raise SettingsWrong("limits.lost_ms must be over twice limits.beat_ms")
    check_commitment(settings.commitment)
    for node in settings.commitment.fingerprints:
        if node not in settings.nodes:
            raise SettingsWrong(f"commitment.fingerprints: {node} is no node of this stack")
    for reason in settings.breaker.reasons:
        if reason not in ATTRIBUTABLE:
            raise SettingsWrong(f"breaker.reasons: `{reason}` says nothing against a node")
    wait_ms = settings.limits.queue_ms + settings.limits.prefill_ms
    if settings.gateway.ticket_s * 1000 < wait_ms:
        raise SettingsWrong(
            "gateway.ticket_s must cover limits.queue_ms plus limits.prefill_ms: a ticket that "
            "expires in the queue would turn load into refusals"
        )
    for problem in settings.tracing.problems():
        raise SettingsWrong(f"tracing.{problem}")
    _check_waivers(settings)
    if settings.drill.enabled:
        return
    if not settings.guards.all_on:
        off = ", ".join(sorted(settings.drill.guards_off))
        raise SettingsWrong(f"guards are off outside drill mode: {off} (drill.enabled = true?)")
    if any(d.landing is LandingPolicy.DIRECT for d in settings.decode):
        raise SettingsWrong("landing = 'direct' is for drills only (drill.enabled = true?)")


def check_commitment(commitment: CommitmentSettings) -> None:
    """Refuse a commitment that cannot be read in one way only.

    Raises:
        SettingsWrong: The message names the setting.
    """
    names = [each.name.strip() for each in commitment.classes]
    if len(set(names)) != len(names) or any(each.name not in names for each in commitment.classes):
        raise SettingsWrong("every [[commitment.classes]] needs a name of its own, on one line")


def _check_waivers(settings: Settings) -> None:
    names = [waiver.name for waiver in settings.waiver]
    if len(set(names)) != len(names):
        raise SettingsWrong("every [[waiver]] needs a name of its own")
    for waiver in settings.waiver:
        for problem in waiver.problems(settings.routes):
            raise SettingsWrong(f"waiver {waiver.name}: {problem}")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the settings file."""
    return msgspec.json.schema(Settings)
