"""What drills may ask of a gateway, in drill mode and with an operator's key only.

    x-kvairlock-route: prefill-0/decode-0     take this route or none (*)
    x-kvairlock-show-ticket: 1                answer with the ticket in `x-kvairlock-ticket`
    POST /drill/points                        arm or release a failpoint or flaw of a node
    POST /drill/marks                         say that a drill begins or has ended (**)

Outside drill mode the headers mean nothing and the endpoint does not exist, but for (*) and a route
whose breaker is not closed: half-open it takes an operator's drills only. And for (**): it changes
nothing but what is on record, see `drill_marks`.
"""

from __future__ import annotations

import base64

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kvairlock.core.messages import Drill
from kvairlock.core.promise.breaker import BreakerState
from kvairlock.core.terms import NodeName, Route
from kvairlock.gateway.auth import authenticate, require_operator
from kvairlock.gateway.bodies import ClientLeft, read_body, read_object
from kvairlock.gateway.drill_marks import NAME, Phase
from kvairlock.gateway.errors import ApiError, Refused, bad_request
from kvairlock.gateway.fields import NUMBER_MAX
from kvairlock.gateway.keys import Principal
from kvairlock.gateway.nodes import NodeDown
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.routes import Routes
from kvairlock.runtime.failpoints import POINTS

ROUTE_HEADER = "x-kvairlock-route"
SHOW_TICKET_HEADER = "x-kvairlock-show-ticket"
TICKET_HEADER = "x-kvairlock-ticket"

ACTIONS = ("arm", "release")
BODY_BYTES_MAX = 4096


def drill_header(parts: Parts, headers: Headers, principal: Principal, name: str) -> str | None:
    """Return a drill's header, or None outside drill mode or without it.

    Raises:
        Refused: 403, the key is not an operator's.
    """
    value = headers.get(name)
    if value is None or not parts.settings.drill.enabled:
        return None
    require_operator(principal)
    return value


def forced_route(parts: Parts, headers: Headers, principal: Principal) -> Route | None:
    """Return the only route that a request may take, or None if it may take any.

    Outside drill mode that is a route that an operator names and whose breaker is not closed.

    Raises:
        Refused: In drill mode: 403, the key is not an operator's; 400, there is no such route.
    """
    named = drill_header(parts, headers, principal, ROUTE_HEADER)
    if named is not None:
        return route_named(parts.routes, named)
    if not principal.operator:
        return None
    found = _find(parts.routes, headers.get(ROUTE_HEADER, ""))
    on_trial = found is not None and parts.breakers[found].state is not BreakerState.CLOSED
    return found if on_trial else None


def route_named(routes: Routes, name: str) -> Route:
    """Return the route of a name.

    Raises:
        Refused: 400, there is none of that name.
    """
    route = _find(routes, name)
    if route is None:
        known = ", ".join(map(str, routes.all))
        raise bad_request(f"no such route; routes are: {known}", ROUTE_HEADER)
    return route


def _find(routes: Routes, name: str) -> Route | None:
    return next((route for route in routes.all if str(route) == name), None)


def ticket_text(ticket: bytes) -> str:
    """Return a ticket as drills show and present it."""
    return base64.urlsafe_b64encode(ticket).decode()


async def points(parts: Parts, request: Request) -> Response:
    """Answer `POST /drill/points`: forward it to the node.

    Raises:
        Refused: 404 outside drill mode, 401, 403, 400 for what makes no sense, 503 if the node is
            not connected.
    """
    if not parts.settings.drill.enabled:
        raise Refused(ApiError(404, "not_found", "there is nothing here outside drill mode"))
    require_operator(authenticate(request.headers, parts.keys))
    try:
        body = await read_body(request.headers, request.receive, BODY_BYTES_MAX)
    except ClientLeft:
        return Response(status_code=400)
    node, drill = _drill(parts.routes, read_object(body))
    try:
        parts.nodes.post(node, drill)
    except NodeDown as error:
        raise Refused(ApiError(503, error.code, str(error))) from None
    return JSONResponse({"sent": {"node": node, "action": drill.action, "point": drill.point}})


async def marks(parts: Parts, request: Request) -> Response:
    """Answer `POST /drill/marks`.

    Raises:
        Refused: 401, 403, 400 for what makes no sense, 409 if too many drills are on.
    """
    require_operator(authenticate(request.headers, parts.keys))
    try:
        body = await read_body(request.headers, request.receive, BODY_BYTES_MAX)
    except ClientLeft:
        return Response(status_code=400)
    fields = read_object(body)
    drill, phase = fields.get("drill"), Phase(_one_of(fields, "phase", list(Phase)))
    if not isinstance(drill, str) or not NAME.fullmatch(drill):
        raise bad_request("`drill` must be small letters, digits, `-` and `_`, 64 at most", "drill")
    parts.marks.mark(drill, phase)
    return JSONResponse({"marked": {"drill": drill, "phase": phase.value}})


def _drill(routes: Routes, fields: dict[str, object]) -> tuple[NodeName, Drill]:
    node = _one_of(fields, "node", [str(name) for name in routes.nodes])
    action = _one_of(fields, "action", list(ACTIONS))
    point = _one_of(fields, "point", [point.value for point in POINTS])
    after = fields.get("after", 0)
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after <= NUMBER_MAX:
        raise bad_request("`after` must be an integer from 0", "after")
    return NodeName(node), Drill(action, point, after)


def _one_of(fields: dict[str, object], name: str, known: list[str]) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or value not in known:
        raise bad_request(f"`{name}` must be one of: {', '.join(known)}", name)
    return value
