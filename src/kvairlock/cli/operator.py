"""How commands ask a running gateway as its operator: where it is, with whose key, what it said.

    with operator(url, key_file) as gateway:     trouble is one line on stderr and an exit status
        told = gateway.get("/status")

The key is read from a file or from the environment, never from the command line, where other users
of the machine would see it. It goes to the host that was named and nowhere else: no redirect is
followed, and no proxy of the environment is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import httpx
import msgspec
import typer

from kvairlock.cli.output import Status, fail
from kvairlock.core.errors import KvairlockError
from kvairlock.runtime.secrets import ApiKeyWrong, api_key_in, api_key_of

DEFAULT_URL = "http://127.0.0.1:8000"
VARIABLE = "KVAIRLOCK_KEY"
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024

NO_KEY = f"name a file that holds an operator's key with --key-file, or set {VARIABLE}"
MAKE_KEY = "`kvairlock keys add NAME --operator` prints a key that may"

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
        self.url = url
        self._http = httpx.Client(
            base_url=_address(url),
            headers={"authorization": f"Bearer {key}"},
            trust_env=False,
            transport=transport,
        )

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
        self._http.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object that a path answers with.

        Raises:
            GatewayRefused: It answered with an error.
            GatewayUnreachable: It did not answer, or not with a JSON object.
        """
        return self._ask("GET", path, None, TIMEOUT_S)

    def post(
        self, path: str, body: Mapping[str, Any], timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Send a JSON object and return the one that is answered.

        Args:
            path: Where to.
            body: The object.
            timeout_s: How long the answer is waited for.

        Raises:
            GatewayRefused: It answered with an error.
            GatewayUnreachable: It did not answer, or not with a JSON object.
        """
        return self._ask("POST", path, body, timeout_s)

    def status(self) -> dict[str, Any]:
        """Return the operator's view of the whole stack."""
        return self.get("/status")

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> dict[str, Any]:
        try:
            with self._http.stream(method, path, json=body, timeout=timeout_s) as response:
                answer = self._object(response)
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise GatewayUnreachable(f"{self.url}: no answer: {why}") from None
        if response.is_success:
            return answer
        said = answer.get("error")
        raise GatewayRefused(response.status_code, said if isinstance(said, dict) else {})

    def _object(self, response: httpx.Response) -> dict[str, Any]:
        data = bytearray()
        for piece in response.iter_bytes():
            data += piece
            if len(data) > ANSWER_BYTES_MAX:
                raise GatewayUnreachable(f"{self.url}: an answer of over {ANSWER_BYTES_MAX} bytes")
        try:
            answer: object = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            kind = f"{response.status_code} without a JSON object"
            raise GatewayUnreachable(f"{self.url}: {kind}; is this a kvairlock gateway?")
        return answer


@contextmanager
def operator(url: str, key_file: Path | None) -> Iterator[Operator]:
    """A gateway to ask; what goes wrong with it ends the command.

    The exit status is 2 if the address or the key can be none or the key is not an operator's, and
    1 if the gateway does not answer or refuses.

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
        fail(str(error), "is `kvairlock serve` running there?", Status.NOT_OK)
    except GatewayRefused as error:
        if error.status in (401, 403):
            fail(str(error), MAKE_KEY)
        fail(str(error), status=Status.NOT_OK)


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


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise OptionWrong(f"{url!r} is no address: {error}") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise OptionWrong(f"{url!r} is no address: http://HOST:PORT is one")
    return address
