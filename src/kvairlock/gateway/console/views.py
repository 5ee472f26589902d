"""What the console has at HTTP addresses.

GET  /console           the page, open: it holds nothing
GET  /console/FILE      its files
GET  /console/live      what it shows, as a stream of events; an operator's key
POST /console/drills    what `kvairlock drill --json` printed; an operator's key
"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kvairlock.gateway.auth import authenticate, require_operator
from kvairlock.gateway.bodies import ClientLeft, read_body
from kvairlock.gateway.console import CONSOLE
from kvairlock.gateway.console.drill_results import BODY_BYTES_MAX
from kvairlock.gateway.console.live import Live
from kvairlock.gateway.console.shell import HEADERS, Shell
from kvairlock.gateway.parts import Parts


def console_routes(parts: Parts) -> tuple[Route, ...]:
    """Return the console's addresses."""
    shell = Shell()
    return (
        Route(CONSOLE, shell.page),
        Route(f"{CONSOLE}/live", partial(live, parts)),
        Route(f"{CONSOLE}/drills", partial(posted, parts), methods=["POST"]),
        Route(f"{CONSOLE}/{{file}}", shell.file),
    )


async def live(parts: Parts, request: Request) -> Response:
    """Answer `GET /console/live`.

    Raises:
        Refused: 401 or 403 without an operator's key, 429 if too many look, 503 at the end.
    """
    require_operator(authenticate(request.headers, parts.keys))
    parts.console.viewers.check()
    if request.method == "HEAD":
        return Response(headers=HEADERS, media_type=Live.media_type)
    return Live(parts, request)


async def posted(parts: Parts, request: Request) -> Response:
    """Answer `POST /console/drills`.

    Raises:
        Refused: 401 or 403 without an operator's key, 400 for another document, 413 for too much.
    """
    require_operator(authenticate(request.headers, parts.keys))
    try:
        body = await read_body(request.headers, request.receive, BODY_BYTES_MAX)
    except ClientLeft:
        return Response(status_code=400)
    return JSONResponse({"kept": parts.console.drills.post(body)}, 202)
