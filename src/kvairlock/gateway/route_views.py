"""What operators see of routes and their breakers, and what they may do about them.

GET  /routes                     all routes: breaker, why it opened, records, what is missing
GET  /routes/PREFILL/DECODE      one route, with what can be seen of its records now
POST /routes/PREFILL/DECODE/open     open its breaker by hand: {"reason": "..."}
POST /routes/PREFILL/DECODE/try      half-open: an operator's drills may name it
POST /routes/PREFILL/DECODE/recover  look for the three records, and close it if they are there
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kvairlock.core.errors import Misuse
from kvairlock.core.promise.breaker import BreakerState, Kept
from kvairlock.core.promise.conditions import Condition
from kvairlock.core.promise.trial import RecordKind
from kvairlock.core.terms import Route
from kvairlock.gateway.auth import authenticate, require_operator
from kvairlock.gateway.bodies import ClientLeft, read_body, read_object
from kvairlock.gateway.breakers import explained
from kvairlock.gateway.errors import ApiError, Refused, bad_request
from kvairlock.gateway.keys import Principal
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.recovery import Finding, Recovery

REASON_MAX = 200
BODY_BYTES_MAX = 4096
Json = dict[str, object]


async def routes(parts: Parts, request: Request) -> Response:
    """Answer `GET /routes`."""
    _operator(parts, request)
    return _json({"routes": [told(parts, route) for route in parts.routes.all]})


async def one(parts: Parts, request: Request) -> Response:
    """Answer `GET /routes/PREFILL/DECODE`.

    Raises:
        Refused: 404, there is no such route; 409, a node of it does not report.
    """
    principal, route = _operator(parts, request), _route(parts, request)
    try:
        found = await Recovery(parts, route, principal.tenant).show()
    except Misuse as error:
        raise _conflict(error) from None
    trial = parts.breakers[route].trial
    kept = {record.kind for record in trial.records} if trial else set()
    return _json({**told(parts, route), "records": _records(found, kept)})


async def opened(parts: Parts, request: Request) -> Response:
    """Answer `POST /routes/PREFILL/DECODE/open`.

    Raises:
        Refused: 404, there is no such route; 400, no reason is given.
    """
    _operator(parts, request)
    route = _route(parts, request)
    try:
        body = await read_body(request.headers, request.receive, BODY_BYTES_MAX)
    except ClientLeft:
        return Response(status_code=400)
    parts.breakers.open(route, Condition.OPERATOR, _reason(read_object(body)))
    return _json(told(parts, route))


async def tried(parts: Parts, request: Request) -> Response:
    """Answer `POST /routes/PREFILL/DECODE/try`.

    Raises:
        Refused: 404, there is no such route; 409, its breaker is closed, or a node is silent.
    """
    principal, route = _operator(parts, request), _route(parts, request)
    try:
        Recovery(parts, route, principal.tenant).begin()
    except Misuse as error:
        raise _conflict(error) from None
    return _json(told(parts, route))


async def recovered(parts: Parts, request: Request) -> Response:
    """Answer `POST /routes/PREFILL/DECODE/recover`.

    Raises:
        Refused: 404, there is no such route; 409, its breaker is closed, or a node is silent.
    """
    principal, route = _operator(parts, request), _route(parts, request)
    try:
        found = await Recovery(parts, route, principal.tenant).run()
    except Misuse as error:
        raise _conflict(error) from None
    shown = {finding.kind for finding in found if not finding.lacks}
    return _json({**told(parts, route), "records": _records(found, shown)})


def told(parts: Parts, route: Route) -> Json:
    """Return what is said of a route and its breaker."""
    kept, closure = parts.breakers[route], parts.routes.closure(route)
    return {
        "route": str(route),
        "takes_requests": "yes" if closure is None else f"no: {closure}",
        "kept": f"no: {parts.breakers.unkept}" if parts.breakers.unkept else "yes",
        **breaker(kept),
        "moment": parts.routes.moment(route),
    }


def breaker(kept: Kept) -> Json:
    """Return what is said of a breaker."""
    return {
        "breaker": kept.state,
        "opening": kept.opening,
        "explained": explained(kept),
        "entered": kept.entered,
        "trial": kept.trial,
        "missing": missing(kept),
    }


def missing(kept: Kept) -> Sequence[RecordKind]:
    """Return which records a breaker lacks before it can close."""
    if kept.state is BreakerState.CLOSED:
        return ()
    return tuple(RecordKind) if kept.trial is None else kept.trial.missing


def _records(found: Sequence[Finding], on_record: Collection[RecordKind]) -> list[Json]:
    return [
        {
            "record": finding.kind,
            "on_record": "yes" if finding.kind in on_record else "no",
            "facts": finding.facts,
            "lacks": finding.lacks,
        }
        for finding in found
    ]


def _operator(parts: Parts, request: Request) -> Principal:
    principal = authenticate(request.headers, parts.keys)
    require_operator(principal)
    return principal


def _route(parts: Parts, request: Request) -> Route:
    name = f"{request.path_params['prefill']}/{request.path_params['decode']}"
    for route in parts.routes.all:
        if str(route) == name:
            return route
    known = ", ".join(map(str, parts.routes.all))
    raise Refused(ApiError(404, "route_not_found", f"no such route; routes are: {known}"))


def _reason(fields: dict[str, object]) -> str:
    reason = fields.get("reason")
    if not isinstance(reason, str) or not reason.strip() or not reason.isprintable():
        raise bad_request("`reason` must say in one line why the breaker is opened", "reason")
    if len(reason) > REASON_MAX:
        raise bad_request(f"`reason` may have up to {REASON_MAX} characters", "reason")
    return reason.strip()


def _conflict(error: Misuse) -> Refused:
    return Refused(ApiError(409, "breaker_refuses", str(error)))


def _json(value: Json) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
