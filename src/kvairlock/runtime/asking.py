"""One question to one server, with all about the answer bounded: its time, its size, its way.

A key goes to the address that it belongs to and nowhere else: no redirect is followed, and no proxy
of the environment is asked. What comes back is believed as far as its type fits; an answer that is
late, too long, packed or of another shape is no answer. Values of an answer are never shown: some
servers put their own keys into what they say of themselves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import httpx
import msgspec

from kvairlock.core.errors import KvairlockError

WAIT_S = 5.0
"""For connecting, and for each wait after that."""

WAITS_MAX = 4
"""A whole answer takes as many waits at most: one that sends a byte now and then is none either."""

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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered, whatever it is.

    Args:
        path: What was asked.
        status: The HTTP status.
        body: All of its bytes.
    """

    path: str
    status: int
    body: bytes

    def text(self) -> str:
        """Return it as text.

        Raises:
            NoAnswer: It is none.
        """
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise NoAnswer(f"{self.path}: the answer is no text") from None

    def shaped(self, shape: type[Shape]) -> Shape:
        """Return what is needed of its JSON.

        Args:
            shape: Type of the answer; members that it does not name are not looked at.

        Raises:
            NoAnswer: It is no JSON, or a member is missing or of another type.
        """
        try:
            return msgspec.json.decode(self.body, type=shape)
        except msgspec.ValidationError as error:
            raise NoAnswer(f"{self.path}: {_without_values(error)}") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise NoAnswer(f"{self.path}: the answer is no JSON") from None


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
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def text(self, path: str) -> str:
        """Return the text that a path answers with.

        Raises:
            NoAnswer: It did not, or not in bounds.
        """
        return self._found(path).text()

    def shaped(self, path: str, shape: type[Shape]) -> Shape:
        """Return the JSON that a path answers with, as what is needed of it.

        Args:
            path: What to ask.
            shape: Type of the answer; members that it does not name are not looked at.

        Raises:
            NoAnswer: It did not, not in bounds, or a member is missing or of another type.
        """
        return self._found(path).shaped(shape)

    def ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        wait_s: float = WAIT_S,
    ) -> Answer:
        """Return what a path answers, of whatever status.

        Args:
            path: What to ask.
            body: What to send there as JSON (POST); nothing is sent if None (GET).
            wait_s: For connecting, and for each wait after that.

        Raises:
            NoAnswer: It did not answer, or not in bounds.
        """
        method = "GET" if body is None else "POST"
        try:
            with self._http.stream(method, path, json=body, timeout=wait_s) as response:
                return Answer(path, response.status_code, _bytes(path, response, wait_s))
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            UnicodeError,
        ) as error:  # the host can be no name
            raise NoAnswer(f"{path}: no answer: {error or type(error).__name__}") from None

    def _found(self, path: str) -> Answer:
        answer = self.ask(path)
        if answer.status != httpx.codes.OK:
            raise NoAnswer(f"{path}: answered {answer.status}", answer.status)
        return answer


def _bytes(path: str, response: httpx.Response, wait_s: float) -> bytes:
    """Return the bytes of an answer as they come, and not for longer than it may take."""
    if response.headers.get("content-encoding", "identity") != "identity":
        why = "the answer is packed, which was not asked for"
        raise NoAnswer(f"{path}: {why}", response.status_code)
    data, whole_s = bytearray(), wait_s * WAITS_MAX
    until = time.monotonic() + whole_s
    for piece in response.iter_bytes():
        data += piece
        if len(data) > ANSWER_BYTES_MAX:
            raise NoAnswer(f"{path}: an answer of over {ANSWER_BYTES_MAX} bytes")
        if time.monotonic() > until:
            raise NoAnswer(f"{path}: the answer took over {whole_s:.0f} s")
    return bytes(data)


def _without_values(error: msgspec.ValidationError) -> str:
    """Return which member is wrong; an invalid value of an enum would be quoted."""
    message = str(error)
    place = message.rpartition(" - at ")[2] if " - at " in message else "the answer"
    return f"a word that is not known, at {place}" if "Invalid enum value" in message else message
