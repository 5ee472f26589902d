"""The cluster's keys: one signs, all verify, so that keys rotate while processes run.

A key is 32 random bytes under a short id. Every use derives its own key, so that a MAC made for one
purpose is worthless for another.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from kvairlock.core.errors import Misuse, PeerMisbehaved, Reason

KEY_BYTES = 32
KEY_ID_BYTES = 8
MAC_BYTES = 32


def keyed(key: bytes, data: bytes) -> bytes:
    """Return the MAC of `data` under a key, 32 bytes (keyed BLAKE2b, RFC 7693)."""
    return hashlib.blake2b(data, key=key, digest_size=MAC_BYTES).digest()


@dataclass(frozen=True, slots=True, repr=False)
class Keyring:
    """Keys by id, the first of which signs.

    Args:
        keys: Key id (at most 8 ASCII characters) to 32 key bytes; order matters.
    """

    keys: dict[str, bytes]

    def __repr__(self) -> str:
        """Show ids only: keys never reach logs or errors."""
        return f"Keyring({', '.join(self.keys)})"

    @classmethod
    def parse(cls, text: str) -> Keyring:
        """Read `id hex` pairs, one per line or separated by commas; `#` starts a comment.

        Raises:
            Misuse: There is no key, an id twice, or a malformed pair.
        """
        keys: dict[str, bytes] = {}
        for line in text.splitlines():
            for pair in filter(str.strip, line.split("#", 1)[0].split(",")):
                words = pair.split()
                if len(words) != 2:
                    raise Misuse("a cluster key is written as: ID HEX")
                keys[_key_id(words[0], keys)] = _key_bytes(words[1])
        if not keys:
            raise Misuse("there is no cluster key")
        return cls(keys)

    @property
    def active_id(self) -> str:
        """The id of the key that signs."""
        return next(iter(self.keys))

    def derive(self, key_id: str, purpose: str) -> bytes:
        """Return the key for one purpose.

        Raises:
            PeerMisbehaved: The id is unknown here (`forged`).
        """
        key = self.keys.get(key_id)
        if key is None:
            raise PeerMisbehaved(Reason.FORGED, f"unknown key id {key_id!r}")
        return keyed(key, purpose.encode())

    def mac(self, key_id: str, purpose: str, data: bytes) -> bytes:
        """Return the MAC of `data` for one purpose, 32 bytes (keyed BLAKE2b, RFC 7693)."""
        return keyed(self.derive(key_id, purpose), data)

    def check(self, key_id: str, purpose: str, data: bytes, mac: bytes) -> None:
        """Verify a MAC in constant time.

        Raises:
            PeerMisbehaved: It does not verify (`forged`).
        """
        if not hmac.compare_digest(self.mac(key_id, purpose, data), mac):
            raise PeerMisbehaved(Reason.FORGED, "the MAC does not verify")


def _key_id(word: str, known: dict[str, bytes]) -> str:
    if not (word.isascii() and word.isalnum() and len(word) <= KEY_ID_BYTES) or word in known:
        raise Misuse("a key id is 1 to 8 letters or digits, each used once")
    return word


def _key_bytes(word: str) -> bytes:
    try:
        key = bytes.fromhex(word)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise Misuse("a cluster key is 64 hexadecimal digits")
    return key


def input_digest(ring: Keyring, key_id: str, salt: str, layout: str, tokens: bytes) -> bytes:
    """Digest all that shapes a prompt's cache, so that it is no dictionary and no equality test.

    Args:
        ring: The cluster's keys.
        key_id: The key that signed the request's ticket.
        salt: The ticket's salt: equal prompts have unequal digests.
        layout: Digest of model, dtype and page geometry.
        tokens: Token ids, little-endian int32.
    """
    # The length keeps salt and layout from running into each other.
    return ring.mac(key_id, f"input {len(salt)} {salt} {layout}", tokens)
