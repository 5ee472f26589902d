"""Whatever bytes come: a message that is what it says, or a typed refusal; never anything else.

What is accepted has the right types in all fields and was authenticated for exactly this use; what
is authentic and right is accepted.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from kvairlock.core.errors import PeerIncompatible, PeerMisbehaved, Reason
from kvairlock.core.messages import RequestTicket
from kvairlock.wire import codec, frames, tickets
from kvairlock.wire.frames import HELLO, MESSAGE, Hello, Session
from kvairlock.wire.keys import Keyring
from kvairlock.wire.versions import SPEAKS
from tests.fuzz import valid
from tests.fuzz.campaign import FEW, fuzz, inputs, reached
from tests.fuzz.odd import ODD, changed, encode, fields_as_bytes, spliced
from tests.fuzz.oracles import HEAD, fits, framed, is_signed, is_what_it_says
from tests.fuzz.valid import HELLO_D, HELLO_P, MESSAGES, RING, THIEF, TICKET

REFUSED_BODY = frozenset({Reason.MALFORMED, Reason.VERSION})


def enveloped(name: object, must: object, body: bytes) -> bytes:
    return b"\x93" + encode(name) + encode(must) + body


class Bodies:
    """The bodies of one version: valid ones, what is done to them, and how they are judged."""

    def __init__(self, version: int) -> None:
        self.version = version
        forms = codec.FORMS[version]
        said = {name: forms.down(MESSAGES[name]) for name in forms.types}
        self.names = tuple(said)
        self.plain = {name: valid.plain(form) for name, form in said.items()}
        self.valid = {name: codec.encode(MESSAGES[name], version) for name in said}

    def odd(self, rng: Random) -> bytes:
        """A message body that something was done to."""
        name = rng.choice(self.names)
        match rng.randrange(8):
            case 0 | 1:
                return changed(rng, self.valid[name])
            case 2:
                return spliced(rng, self.valid[name], self.valid[rng.choice(self.names)])
            case 3:
                must = rng.choice(([], list(self.plain[name])[:2], ["more"], rng.choice(ODD)))
                shown = rng.choice((name, name.upper(), rng.choice(self.names), rng.choice(ODD)))
                return enveloped(shown, must, encode(self.plain[name]))
        return enveloped(name, [], fields_as_bytes(rng, self.plain[name]))

    def judge(self, data: bytes) -> str:
        try:
            message = codec.decode(data, self.version)
        except PeerMisbehaved as error:
            return error.reason
        _, _, body = msgspec.msgpack.decode(data, type=tuple[str, list[str], msgspec.Raw])
        said = codec.FORMS[self.version].down(message)
        assert is_what_it_says(said, bytes(body)), message
        again = codec.encode(message, self.version)
        assert codec.encode(codec.decode(again, self.version), self.version) == again
        return "accepted"


BODIES = {version: Bodies(version) for version in SPEAKS}
NEW = BODIES[valid.NEWEST]


@pytest.mark.parametrize("version", SPEAKS)
@inputs(200_000)
def test_bodies(count: int, version: int) -> None:
    bodies = BODIES[version]
    outcomes = fuzz(f"body of version {version}", count, bodies.odd, bodies.judge)
    assert set(outcomes) == {"accepted", *REFUSED_BODY}


# Frames


def _purpose(sender: Hello, receiver: Hello) -> str:
    nonces = b"".join(sorted((sender.nonce, receiver.nonce))).hex()
    name = sender.peer.node
    return f"frame {nonces} {len(name)} {name} to {receiver.peer.node}"


FORTH, BACK = _purpose(HELLO_D, HELLO_P), _purpose(HELLO_P, HELLO_D)
PURPOSES = (FORTH, FORTH, FORTH, FORTH, BACK, "hello", tickets.PURPOSE, FORTH.replace("00", "11"))
FRAME = Session(RING, HELLO_D, HELLO_P).seal(MESSAGES["cancel"])
HELLO_FRAME = frames.seal_hello(RING, HELLO_D)


def signed(ring: Keyring, purpose: str, head: tuple[object, ...], body: bytes) -> bytes:
    data = HEAD.pack(*head) + body
    return data + ring.mac("new", purpose, data)


def odd_head(rng: Random, kind: int, sequence: int, length: int) -> tuple[object, ...]:
    """Header fields of which most are right."""
    right: list[object] = [b"KV", 1, kind, b"new", sequence, length]
    wrong: list[tuple[object, ...]] = [
        (b"VK", b"\0\0"),
        (0, 2, 255),
        (0, 1, 2),
        (b"old", b"nobody", b"", b"\xff" * 8),
        (0, 2, 2**64 - 1),
        (0, length + 1, 2**32 - 1, frames.FRAME_BYTES_MAX + 1),
    ]
    if rng.random() < 0.5:
        at = rng.randrange(len(right))
        right[at] = rng.choice(wrong[at])
    return tuple(right)


def odd_frame(rng: Random) -> bytes:
    """A frame that something was done to, before or after it was signed."""
    match rng.randrange(6):
        case 0:
            return changed(rng, FRAME)
        case 1:
            return HEAD.pack(*odd_head(rng, MESSAGE, 1, len(FRAME) - 60)) + FRAME[HEAD.size :]
        case 2:
            return spliced(rng, FRAME, HELLO_FRAME)
    body = rng.choice((NEW.valid["cancel"], NEW.odd(rng)))
    head = odd_head(rng, MESSAGE, 1, len(body))
    return signed(rng.choice((RING, RING, RING, THIEF)), rng.choice(PURPOSES), head, body)


class Channel:
    """The receiving end of a channel on which nothing has been read yet."""

    def __init__(self, verify: bool = True) -> None:
        self.verify = verify
        self.begin()

    def begin(self) -> None:
        self.session = Session(RING, HELLO_P, HELLO_D, verify=self.verify)

    def judge(self, frame: bytes) -> str:
        found = framed(RING.keys, FORTH, frame)
        in_turn = found is not None and found[:2] == (MESSAGE, 1)
        try:
            message = self.session.open(frame)
        except (PeerMisbehaved, PeerIncompatible) as error:
            if in_turn and found is not None:
                assert NEW.judge(found[2]) in REFUSED_BODY
                self.begin()
            return error.reason if isinstance(error, PeerMisbehaved) else "incompatible"
        assert in_turn, "accepted, and is not authentic or not in turn"
        assert found is not None
        assert message == codec.decode(found[2], valid.NEWEST)
        self.begin()
        return "accepted"


@inputs(250_000)
def test_frames(count: int) -> None:
    outcomes = fuzz("frame", count, odd_frame, Channel().judge)
    reasons = ("accepted", "malformed", "forged", "replayed", "version", "incompatible")
    assert reached(outcomes, *reasons)


def test_frames_without_their_guard_are_still_refused_by_type() -> None:
    """In drills nothing is authenticated: what is no message is refused all the same."""
    session = Session(RING, HELLO_P, HELLO_D, verify=False)

    def judge(frame: bytes) -> str:
        try:
            return type(session.open(frame)).__name__
        except (PeerMisbehaved, PeerIncompatible):
            return "refused"

    fuzz("unverified frame", FEW, odd_frame, judge)


# Greetings


def odd_hello(rng: Random) -> bytes:
    """A greeting that something was done to, before or after it was signed."""
    match rng.randrange(4):
        case 0:
            return changed(rng, HELLO_FRAME)
        case 1:
            return spliced(rng, HELLO_FRAME, FRAME)
    body = fields_as_bytes(rng, valid.plain(rng.choice((HELLO_D, HELLO_P))))
    head = odd_head(rng, HELLO, 0, len(body))
    purpose = rng.choice(("hello", "hello", "hello", FORTH))
    return signed(rng.choice((RING, RING, RING, THIEF)), purpose, head, body)


def judge_hello(frame: bytes) -> str:
    found = framed(RING.keys, "hello", frame)
    try:
        hello = frames.open_hello(RING, frame)
    except (PeerMisbehaved, PeerIncompatible) as error:
        return error.reason if isinstance(error, PeerMisbehaved) else "incompatible"
    assert found is not None, "accepted, and is not authentic"
    assert found[0] == HELLO
    assert is_what_it_says(hello, found[2])
    assert len(hello.nonce) == 16
    return "accepted"


@inputs(100_000)
def test_greetings(count: int) -> None:
    outcomes = fuzz("greeting", count, odd_hello, judge_hello)
    assert reached(outcomes, "accepted", "malformed", "forged", "incompatible")


# Tickets

SIGNED = tickets.sign(RING, TICKET)
TICKET_TREE = valid.plain(TICKET)


def odd_ticket(rng: Random) -> bytes:
    """A ticket that something was done to, before or after it was signed."""
    if rng.random() < 0.3:
        return changed(rng, SIGNED)
    body = fields_as_bytes(rng, TICKET_TREE)
    version = rng.choice((b"\1", b"\1", b"\1", b"\0", b"\2"))
    name = rng.choice((b"new", b"new", b"new", b"old", b"nobody", b"\xff" * 8))
    data = version + name.ljust(8, b"\0") + body
    purpose = rng.choice((tickets.PURPOSE, tickets.PURPOSE, tickets.PURPOSE, "hello", FORTH))
    return data + rng.choice((RING, RING, RING, THIEF)).mac("new", purpose, data)


def judge_ticket(data: bytes) -> str:
    try:
        ticket = tickets.verify(RING, data)
    except PeerMisbehaved as error:
        return error.reason
    assert data[:1] == b"\1"
    assert is_signed(RING.keys, data[1:9], tickets.PURPOSE, data), "accepted, and is not signed"
    assert is_what_it_says(ticket, data[9:-32])
    return "accepted"


@inputs(100_000)
def test_tickets(count: int) -> None:
    outcomes = fuzz("ticket", count, odd_ticket, judge_ticket)
    assert reached(outcomes, "accepted", "malformed", "forged", "version")


def test_tickets_without_their_guard_are_still_refused_by_type() -> None:
    """In drills nothing is signed: what is no ticket is refused all the same."""

    def judge(data: bytes) -> str:
        try:
            return "taken" if fits(RequestTicket)(tickets.verify(RING, data, check=False)) else ""
        except PeerMisbehaved as error:
            return error.reason

    assert fuzz("unsigned ticket", FEW, odd_ticket, judge)[""] == 0


# The campaigns themselves


def test_a_channel_that_authenticates_nothing_is_found() -> None:
    with pytest.raises(AssertionError, match="is not authentic"):
        fuzz("frame", FEW, odd_frame, Channel(verify=False).judge)


def test_a_keyring_that_takes_any_mac_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keyring, "check", lambda *_: None)
    with pytest.raises(AssertionError, match="is not authentic"):
        fuzz("greeting", FEW, odd_hello, judge_hello)
    with pytest.raises(AssertionError, match="is not signed"):
        fuzz("ticket", FEW, odd_ticket, judge_ticket)


def test_a_campaign_tells_the_input_that_failed_as_hex() -> None:
    def judge(data: bytes) -> str:
        assert data != b"\1\2"
        return "fine"

    with pytest.raises(AssertionError, match=r"target, seed \d+, input 0: .*\n0102"):
        fuzz("target", 3, lambda rng: b"\1\2", judge)


@pytest.mark.parametrize(
    "wrong",
    [
        {"stop": True},
        {"stop": 3.0},
        {"outcome": "completed"},
        {"pages": [3, 3]},
        {"pages": (3, True)},
        {"input_digest": "r/1"},
        {"owner": None},
    ],
    ids=str,
)
def test_the_oracle_finds_what_has_not_its_own_type(wrong: dict[str, object]) -> None:
    receipt = valid.example(type(MESSAGES["receipt"]))
    assert fits(type(receipt))(receipt)
    for name, value in wrong.items():
        object.__setattr__(receipt, name, value)
    assert not fits(type(receipt))(receipt)


def test_the_oracle_finds_what_was_not_said() -> None:
    receipt, body = MESSAGES["receipt"], encode(NEW.plain["receipt"])
    assert is_what_it_says(receipt, body)
    assert not is_what_it_says(receipt, encode({**NEW.plain["receipt"], "stop": 4}))
    assert not is_what_it_says(receipt, encode({**NEW.plain["receipt"], "pages": [3]}))
    assert not is_signed(RING.keys, b"new", "hello", SIGNED)
    assert is_signed(RING.keys, b"new", tickets.PURPOSE, SIGNED)
    assert framed(RING.keys, BACK, FRAME) is None
    assert framed(RING.keys, FORTH, FRAME) is not None
