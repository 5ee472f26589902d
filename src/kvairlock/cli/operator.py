"""How commands ask a running gateway as its operator: where it is, with whose key, what it said.

    with operator(url, key_file) as gateway:     trouble is one line on stderr and an exit status
        told = gateway.get("/status")            all that it said, for a document
        stack = shaped(told, Stack)              what the command needs of it

The key is read from a file or from the environment, never from the command line, where other users
of the machine would see it. It goes to the host that was named and nowhere else. A gateway of
another release may say less than a command needs; what it does not say is not guessed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, TypeVar

import httpx
import msgspec
import typer

from kvairlock.cli.output import Status, fail
from kvairlock.core.errors import KvairlockError
from kvairlock.runtime.asking import Answer, Asker, NoAnswer
from kvairlock.runtime.secrets import ApiKeyWrong, api_key_in, api_key_of

DEFAULT_URL = "http://127.0.0.1:8000"
VARIABLE = "KVAIRLOCK_API_KEY"
WAIT_S = 10.0

NO_KEY = f"name a file that holds an operator's key with --key-file, or set {VARIABLE}"
MAKE_KEY = "`kvairlock keys add NAME --operator` prints a key that may"
NOT_THERE = "is `kvairlock serve` running there?"
ANOTHER = "is the gateway of this release? docs/versions.md says which may run together"

NOT_ALLOWED = frozenset({401, 403})
NOT_POSSIBLE = frozenset({400, 404})
"""What the gateway answers if a number or a name makes no sense: the options were wrong."""

Shape = TypeVar("Shape")
Url = Annotated[str, typer.Option("--url", metavar="URL", help="Where the gateway listens.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help=f"File with an operator's API key; else the environment's {VARIABLE}.",
    ),
]


class OptionWrong(KvairlockError):
    """The address or the key can be none; the message never shows a key."""

    code = "option_wrong"


class GatewayUnreachable(KvairlockError):
    """Nothing that could be understood came from the gateway."""

    code = "gateway_unreachable"


class GatewayDiffers(KvairlockError):
    """The gateway answers, and does not say what a command needs; the message names it."""

    code = "gateway_differs"


class GatewayRefused(KvairlockError):
    """The gateway answered with an error.

    Args:
        status: The HTTP status.
        error: The error object, `code` and `message` among it.
    """

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(f"the gateway answered {status}: {error.get('message', 'no message')}")
        self.status, self.error = status, error


class Operator:
    """A client of one gateway, with an operator's key.

    Args:
        url: The gateway's address.
        key: The API key.
        transport: The way there, for tests.

    Raises:
        OptionWrong: The address can be none.
    """

    def __init__(self, url: str, key: str, transport: httpx.BaseTransport | None = None) -> None:
        _must_be_address(url)
        self.url = url.rstrip("/")
        self._asker = Asker(url, key, transport)

    def __enter__(self) -> Operator:
        """Open nothing yet: the first question does."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self._asker.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object that a path answers with.

        Raises:
            GatewayRefused: It answered with an error.
            GatewayUnreachable: It did not answer, or not with a JSON object.
        """
        return self._ask(path, None, WAIT_S)

    def post(self, path: str, body: Mapping[str, Any], wait_s: float = WAIT_S) -> dict[str, Any]:
        """Send a JSON object and return the one that is answered.

        Args:
            path: Where to.
            body: The object.
            wait_s: How long the answer is waited for.

        Raises:
            GatewayRefused: It answered with an error.
            GatewayUnreachable: It did not answer, or not with a JSON object.
        """
        return self._ask(path, body, wait_s)

    def status(self) -> dict[str, Any]:
        """Return the operator's view of the whole stack."""
        return self.get("/status")

    def _ask(self, path: str, body: Mapping[str, Any] | None, wait_s: float) -> dict[str, Any]:
        try:
            answer = self._asker.ask(path, body, wait_s)
        except NoAnswer as missing:
            raise GatewayUnreachable(f"{self.url}{missing}") from None
        told = self._object(answer)
        if httpx.codes.is_success(answer.status):
            return told
        said = told.get("error")
        raise GatewayRefused(answer.status, said if isinstance(said, dict) else {})

    def _object(self, answer: Answer) -> dict[str, Any]:
        try:
            return answer.shaped(dict[str, Any])
        except NoAnswer:
            kind = f"{answer.status} without a JSON object"
            message = f"{self.url}{answer.path}: {kind}; is this a kvairlock gateway?"
            raise GatewayUnreachable(message) from None


def shaped(told: Mapping[str, Any], shape: type[Shape]) -> Shape:
    """Return what a command needs of an answer.

    Args:
        told: The answer.
        shape: What is needed of it; members that it does not name are not looked at.

    Raises:
        GatewayDiffers: A member is missing, or of another type.
    """
    try:
        return msgspec.convert(told, shape)
    except msgspec.ValidationError as error:
        raise GatewayDiffers(f"the gateway does not say what is needed: {error}") from None


@contextmanager
def operator(url: str, key_file: Path | None) -> Iterator[Operator]:
    """A gateway to ask; what goes wrong with it ends the command.

    The exit status is 2 if the address, the key, or what was asked for makes no sense, and 1 if the
    gateway does not answer, does not say what is needed, or refuses for another reason.

    Args:
        url: The gateway's address.
        key_file: File that holds the key, or None for the environment's.

    Raises:
        typer.Exit: Why is on stderr.
    """
    try:
        with Operator(url, operator_key(key_file)) as gateway:
            yield gateway
    except OptionWrong as error:
        fail(str(error))
    except GatewayUnreachable as error:
        fail(str(error), NOT_THERE, Status.NOT_OK)
    except GatewayDiffers as error:
        fail(str(error), ANOTHER, Status.NOT_OK)
    except GatewayRefused as error:
        if error.status in NOT_ALLOWED:
            fail(str(error), MAKE_KEY)
        fail(str(error), status=Status.WRONG if error.status in NOT_POSSIBLE else Status.NOT_OK)


def operator_key(file: Path | None) -> str:
    """Return the key of a file that only its owner can read, or of the environment.

    Raises:
        OptionWrong: There is none, or others can read it.
    """
    if file is None and not os.environ.get(VARIABLE, "").strip():
        raise OptionWrong(f"no operator's key: {NO_KEY}")
    try:
        return api_key_of(VARIABLE) if file is None else api_key_in(file)
    except ApiKeyWrong as error:
        raise OptionWrong(str(error)) from None


def _must_be_address(url: str) -> None:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise OptionWrong(f"{url!r} is no address: {error}") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise OptionWrong(f"{url!r} is no address: http://HOST:PORT is one")
