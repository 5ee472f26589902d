"""Signatures of bundles: Ed25519, so that who checks one can't make one.

The private key lies in the state folder, for its owner only, and is made on first use. Its public
key is 64 hexadecimal digits; an operator publishes it somewhere else than in the bundles.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from kvairlock.core.errors import KvairlockError
from kvairlock.runtime.secrets import read_private, write_private

KEY_FILE = "bundle.key"
KEY_BYTES = 32
COMMENT = "# Ed25519 private key: signs evidence bundles (kvairlock explain --bundle)\n"
PURPOSE = b"kvairlock evidence bundle\n"
"""In front of what is signed, so that a signature is none of anything else."""

_HEX = re.compile(r"[0-9a-f]{64}")


class SigningKeyWrong(KvairlockError):
    """A key of bundles can't be used; the message says why, and never shows a private one."""

    code = "bundle_key_wrong"


class Signer:
    """Signs with one private key.

    Args:
        key: 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(key)

    @classmethod
    def of(cls, state: Path) -> Signer:
        """Read the key of a state folder; it is made if there is none.

        Raises:
            SigningKeyWrong: Others can read it, or it is no key.
        """
        path = state / KEY_FILE
        if not path.exists():
            write_private(path, COMMENT + secrets.token_bytes(KEY_BYTES).hex() + "\n")
        lines = read_private(path, SigningKeyWrong).splitlines()
        words = [line for line in lines if not line.startswith("#")]
        if len(words) != 1 or not _HEX.fullmatch(words[0]):
            raise SigningKeyWrong(f"{path}: must hold one key of 64 hexadecimal digits")
        return cls(bytes.fromhex(words[0]))

    @property
    def public_key(self) -> str:
        """The public key, 64 hexadecimal digits."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, data: bytes) -> str:
        """Return the signature of data, 128 hexadecimal digits."""
        return self._key.sign(PURPOSE + data).hex()


def is_signed(data: bytes, signature: str, public_key: str) -> bool:
    """Whether a signature is one of this data by this key; both are hexadecimal."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), PURPOSE + data)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key_of(word: str) -> str:
    """Return a public key that was given as itself, or as a file that holds it.

    Raises:
        SigningKeyWrong: It is neither.
    """
    if _HEX.fullmatch(word):
        return word
    try:
        text = Path(word).read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise SigningKeyWrong(f"{word} is no public key, and no file with one") from None
    if not _HEX.fullmatch(text):
        raise SigningKeyWrong(f"{word} must hold a public key of 64 hexadecimal digits")
    return text
