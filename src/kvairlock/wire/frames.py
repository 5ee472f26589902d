"""Authenticated frames of one channel: who speaks to whom, in which order, in which life.

    magic 2 | version 1 | kind 1 | key id 8 | sequence 8 | length 4 | body | MAC 32

A channel opens with a `Hello` in each direction; the second names the nonce of the first, and the
first frame of the session confirms both, so that an old hello opens nothing. From both nonces each
direction derives its own session, so that a frame can be neither reflected, nor replayed on another
channel, nor repeated or left out on its own. The MAC is computed over the bytes as received, before
anything is parsed.

The version in the header is that of the frame. Which version of the messages is in it was agreed by
the hellos: each states what its process speaks.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec

from kvairlock.core.errors import Misuse, PeerIncompatible, PeerMisbehaved, Reason
from kvairlock.core.messages import Message
from kvairlock.core.terms import Peer
from kvairlock.wire import codec
from kvairlock.wire.keys import KEY_ID_BYTES, MAC_BYTES, Keyring
from kvairlock.wire.versions import UNSTATED, Versions, agree, are_plausible

VERSION = 1
MAGIC = b"KV"
FRAME_BYTES_MAX = 16 * 1024 * 1024
HEADER = struct.Struct(f">2sBB{KEY_ID_BYTES}sQI")
HELLO, MESSAGE = 0, 1
NONCE_BYTES = 16


class Nonsense(PeerMisbehaved):
    """What a peer says under its own MAC makes no sense: nobody else can have said it."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame in each direction.

    Args:
        peer: Who speaks.
        to: The name of the process that it wants to speak to.
        nonce: 16 fresh random bytes.
        layout: Digest of the model layout, or empty for a process that holds no pages.
        answers: The nonce of the hello that this one answers; empty in the first of the two.
        speaks: The versions of the messages that it speaks. 0.1.0 does not say: a hello without
            them speaks version 1, by the definition of version 1.
    """

    peer: Peer
    to: str
    nonce: bytes
    layout: str
    answers: bytes = b""
    speaks: Versions = UNSTATED


def frame_bytes(header: bytes) -> int:
    """Return how many bytes follow a header, from the header alone.

    Raises:
        PeerMisbehaved: It is no header, or announces more than `FRAME_BYTES_MAX`.
        PeerIncompatible: It is of another version.
    """
    magic, version, _, _, _, length = HEADER.unpack(header)
    if magic != MAGIC:
        raise PeerMisbehaved(Reason.MALFORMED, "not a frame")
    if version != VERSION:
        raise PeerIncompatible(f"frame version {version}, this process speaks {VERSION}")
    if length > FRAME_BYTES_MAX:
        raise PeerMisbehaved(Reason.MALFORMED, f"a frame of {length} bytes is over the limit")
    return int(length) + MAC_BYTES


def _seal(ring: Keyring, purpose: str, kind: int, sequence: int, body: bytes) -> bytes:
    if len(body) > FRAME_BYTES_MAX:
        raise Misuse(f"a message of {len(body)} bytes does not fit a frame")
    key_id = ring.active_id
    name = key_id.encode().ljust(KEY_ID_BYTES, b"\0")
    signed = HEADER.pack(MAGIC, VERSION, kind, name, sequence, len(body)) + body
    return signed + ring.mac(key_id, purpose, signed)


def _open(ring: Keyring, purpose: str, kind: int, frame: bytes, verify: bool) -> tuple[int, bytes]:
    if len(frame) < HEADER.size + MAC_BYTES:
        raise PeerMisbehaved(Reason.MALFORMED, "truncated frame")
    expected = frame_bytes(frame[: HEADER.size])
    if len(frame) != HEADER.size + expected:
        raise PeerMisbehaved(Reason.MALFORMED, "truncated frame")
    _, _, got_kind, name, sequence, _ = HEADER.unpack_from(frame)
    signed, mac = frame[:-MAC_BYTES], frame[-MAC_BYTES:]
    if verify:
        key_id = name.rstrip(b"\0").decode("ascii", "replace")
        ring.check(key_id, purpose, signed, mac)
    if got_kind != kind:
        raise PeerMisbehaved(Reason.MALFORMED, "frame of another kind")
    return sequence, signed[HEADER.size :]


def seal_hello(ring: Keyring, hello: Hello) -> bytes:
    """Return the first frame of a direction."""
    return _seal(ring, "hello", HELLO, 0, msgspec.msgpack.encode(hello))


def open_hello(ring: Keyring, frame: bytes, verify: bool = True) -> Hello:
    """Read the first frame of a direction.

    Raises:
        PeerMisbehaved: It is forged, truncated or malformed.
        PeerIncompatible: It is of another version.
    """
    _, body = _open(ring, "hello", HELLO, frame, verify)
    try:
        hello = msgspec.msgpack.decode(body, type=Hello)
    except codec.UNREADABLE as error:
        raise PeerMisbehaved(Reason.MALFORMED, f"hello: {error}") from None
    if len(hello.nonce) != NONCE_BYTES:
        raise PeerMisbehaved(Reason.MALFORMED, "hello: nonce of another length")
    if not are_plausible(hello.speaks):
        raise PeerMisbehaved(Reason.MALFORMED, "hello: versions that no process speaks")
    return hello


def _purpose(nonces: str, sender: Peer, receiver: Peer) -> str:
    """Name one direction of one channel; the length keeps names from running into each other."""
    return f"frame {nonces} {len(sender.node)} {sender.node} to {receiver.node}"


class Session:
    """Seals and opens the messages of one channel after both hellos.

    Args:
        ring: The cluster's keys.
        mine: The hello that this side sent.
        theirs: The hello that the other side sent.
        verify: False only in drills in which the `frame` guard is off.

    Raises:
        PeerMisbehaved: The other side wanted to speak to somebody else (`identity`).
        PeerIncompatible: There is no version of the messages that both speak.
    """

    def __init__(self, ring: Keyring, mine: Hello, theirs: Hello, *, verify: bool = True) -> None:
        if theirs.to != mine.peer.node:
            raise PeerMisbehaved(Reason.IDENTITY, "the peer wanted to reach another process")
        if theirs.nonce == mine.nonce:
            raise PeerMisbehaved(Reason.REPLAYED, "the peer repeats our own hello")
        self.version = agree(mine.speaks, theirs.speaks)
        """The version of the messages on this channel."""
        self._ring, self._verify = ring, verify
        nonces = b"".join(sorted((mine.nonce, theirs.nonce))).hex()
        self._sends = _purpose(nonces, mine.peer, theirs.peer)
        self._receives = _purpose(nonces, theirs.peer, mine.peer)
        self._sent = self._received = 0

    def seal(self, message: Message) -> bytes:
        """Return the next frame of our direction.

        Raises:
            PeerIncompatible: The agreed version has no form for the message; nothing was sealed.
        """
        body = codec.encode(message, self.version)
        self._sent += 1
        return _seal(self._ring, self._sends, MESSAGE, self._sent, body)

    def open(self, frame: bytes) -> Message:
        """Read the next frame of the other direction.

        Raises:
            PeerMisbehaved: It is forged, repeated, out of order or truncated.
            Nonsense: It is authentic, and what it says is no message.
            PeerIncompatible: It is of another version.
        """
        sequence, body = _open(self._ring, self._receives, MESSAGE, frame, self._verify)
        if self._verify and sequence != self._received + 1:
            raise PeerMisbehaved(Reason.REPLAYED, "a frame was repeated or is missing")
        self._received = sequence
        try:
            return codec.decode(body, self.version)
        except PeerMisbehaved as error:
            if not self._verify:
                raise  # Anybody can have said it.
            raise Nonsense(error.reason, str(error)) from None
