"""Reads a request body up to a limit, whatever its Content-Length says, and watches for leaving.

A body over the limit is answered with 413. What is left of it is read and thrown away for a moment
first: a socket closed with unread data resets the connection, and the client would never see the
answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive

from kvairlock.gateway.errors import ApiError, Refused, bad_request

BODY_S = 30
DISCARD_S = 2
DISCARD_BYTES_MAX = 64 * 1024 * 1024


class ClientLeft(Exception):
    """The client has closed the connection; there is nobody to answer."""


async def read_body(headers: Headers, receive: Receive, limit_bytes: int) -> bytes:
    """Return the whole body.

    Args:
        headers: The request's headers.
        receive: Where the body comes from.
        limit_bytes: The largest body that is taken.

    Raises:
        Refused: 413 if it is larger, 408 if it did not come in time.
        ClientLeft: The client left before it was complete.
    """
    if _announced(headers) > limit_bytes:
        if "expect" not in headers:
            await _discard(receive)
        raise _too_large(limit_bytes)
    try:
        with anyio.fail_after(BODY_S):
            return await _gather(receive, limit_bytes)
    except TimeoutError:
        message = f"the request body did not arrive within {BODY_S} s"
        raise Refused(ApiError(408, "request_timeout", message, headers=_CLOSE)) from None


def read_object(body: bytes) -> dict[str, object]:
    """Return the members of the JSON object that a body is; of a repeated name the last counts.

    Raises:
        Refused: 400, it is something else.
    """
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        cause = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"the request body is not JSON: {cause}"
        raise bad_request(message, code="malformed_json") from None
    if not isinstance(value, dict):
        raise bad_request("the request body is not a JSON object", code="malformed_json")
    return value


async def while_connected(receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work`, and cancel it when the client leaves.

    Args:
        receive: The request's channel, its body read.
        work: What is done for the client.
    """
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        await work()
        tasks.cancel_scope.cancel()


_CLOSE = {"connection": "close"}


def _announced(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    return int(length) if length.isdecimal() else 0


def _too_large(limit_bytes: int) -> Refused:
    message = f"the request body is over the limit of {limit_bytes} bytes (body_bytes_max)"
    figures: dict[str, str | int] = {"limit": limit_bytes, "limit_name": "body_bytes_max"}
    return Refused(ApiError(413, "body_too_large", message, headers=_CLOSE, figures=figures))


async def _gather(receive: Receive, limit_bytes: int) -> bytes:
    body = bytearray()
    more = True
    while more:
        piece, more = await _next(receive)
        body += piece
        if len(body) > limit_bytes:
            if more:
                await _discard(receive)
            raise _too_large(limit_bytes)
    return bytes(body)


async def _next(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message.get("body", b""), message.get("more_body", False)


async def _discard(receive: Receive) -> None:
    left, more = DISCARD_BYTES_MAX, True
    with anyio.move_on_after(DISCARD_S):
        while more and left > 0:
            piece, more = await _next(receive)
            left -= len(piece)
