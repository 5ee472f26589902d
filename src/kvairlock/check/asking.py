"""One question to one server, with all about the answer bounded: its time, its size, its way.

A key goes to the address that it belongs to and nowhere else: no redirect is followed, and no proxy
of the environment is asked. What comes back is believed as far as its type fits; an answer that is
late, too long, of another status or shape is no answer. Values of an answer are never shown: some
servers put their own keys into what they say of themselves.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TypeVar

import httpx
import msgspec

from kvairlock.core.errors import KvairlockError

TIMEOUT_S = 5.0
"""For connecting, and for each wait after that."""

ANSWER_S = 20.0
"""For a whole answer: a server that sends a byte now and then is no answer either."""

ANSWER_BYTES_MAX = 16 * 1024 * 1024

Shape = TypeVar("Shape")


class NoAnswer(KvairlockError):
    """A server did not say what was asked; the message says what is missing.

    Args:
        message: What is missing, with the path that was asked.
        status: The HTTP status, if there was an answer of another kind.
    """

    code = "no_answer"

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Asker:
    """A client of one server.

    Args:
        url: Its address.
        key: The key that it asks for, or None.
        transport: The way there, for tests.
    """

    def __init__(
        self, url: str, key: str | None, transport: httpx.BaseTransport | None = None
    ) -> None:
        # Packed answers could be larger than any bound as soon as they are unpacked.
        headers = {"accept-encoding": "identity"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=TIMEOUT_S,
            trust_env=False,
            follow_redirects=False,
            transport=transport,
        )

    def __enter__(self) -> Asker:
        """Open nothing yet: the first question does."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self._http.close()

    def text(self, path: str) -> str:
        """Return the text that a path answers with.

        Raises:
            NoAnswer: It did not, or not in bounds.
        """
        try:
            return self._bytes(path).decode()
        except UnicodeDecodeError:
            raise NoAnswer(f"{path}: the answer is no text") from None

    def shaped(self, path: str, shape: type[Shape]) -> Shape:
        """Return the JSON that a path answers with, as what is needed of it.

        Args:
            path: What to ask.
            shape: Type of the answer; members that it does not name are not looked at.

        Raises:
            NoAnswer: It did not, not in bounds, or a member is missing or of another type.
        """
        try:
            return msgspec.json.decode(self._bytes(path), type=shape)
        except msgspec.ValidationError as error:
            raise NoAnswer(f"{path}: {_without_values(error)}") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise NoAnswer(f"{path}: the answer is no JSON") from None

    def _bytes(self, path: str) -> bytes:
        until = time.monotonic() + ANSWER_S
        data = bytearray()
        try:
            with self._http.stream("GET", path) as response:
                if response.status_code != httpx.codes.OK:
                    raise NoAnswer(f"{path}: answered {response.status_code}", response.status_code)
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise NoAnswer(f"{path}: the answer is packed, which was not asked for")
                for piece in response.iter_raw():
                    data += piece
                    if len(data) > ANSWER_BYTES_MAX:
                        raise NoAnswer(f"{path}: an answer of over {ANSWER_BYTES_MAX} bytes")
                    if time.monotonic() > until:
                        raise NoAnswer(f"{path}: the answer took over {ANSWER_S:.0f} s")
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            UnicodeError,
        ) as error:  # the host can be no name
            raise NoAnswer(f"{path}: no answer: {error or type(error).__name__}") from None
        return bytes(data)


def _without_values(error: msgspec.ValidationError) -> str:
    """Return which member is wrong; an invalid value of an enum would be quoted."""
    message = str(error)
    place = message.rpartition(" - at ")[2] if " - at " in message else "the answer"
    return f"a word that is not known, at {place}" if "Invalid enum value" in message else message
