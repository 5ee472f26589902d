"""The HTTP application: the OpenAI API, and what operators look at.

POST /v1/completions, /v1/chat/completions    an API key
GET  /v1/models[/ID]        an API key
GET  /healthz, /metrics     open; they name nodes, never tenants
GET  /status                an operator's key
POST /nodes/NAME/pages      an operator's key
GET, POST /routes[/...]     an operator's key; see `route_views`
POST /drill/points          an operator's key, in drill mode only
POST /drill/marks           an operator's key
GET  /console[/...]         the page is open and holds nothing; see `console.views`
"""

from __future__ import annotations

import time
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kvairlock.gateway import route_views
from kvairlock.gateway.auth import authenticate, require_operator
from kvairlock.gateway.console.views import console_routes
from kvairlock.gateway.coverage import coverage, waivers
from kvairlock.gateway.drills import marks, points
from kvairlock.gateway.endpoints import ENDPOINTS
from kvairlock.gateway.errors import ApiError, Refused, unknown_model
from kvairlock.gateway.exchange import Serving
from kvairlock.gateway.figures import figures
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.reports import NodeView
from kvairlock.gateway.resizing import resize
from kvairlock.metrics.exposition import Exposition
from kvairlock.runtime import clock

ONE_ROUTE = "/routes/{prefill}/{decode}"
CODES = {404: "not_found", 405: "method_not_allowed"}


def make_app(parts: Parts) -> Starlette:
    """Return the application of a gateway."""
    started_unix_s = int(time.time())
    app = Starlette(
        routes=[
            *(Route(e.path, Serving(parts, e), methods=["POST"]) for e in ENDPOINTS),
            Route("/v1/models", partial(models, parts, started_unix_s)),
            Route("/v1/models/{model:path}", partial(model, parts, started_unix_s)),
            Route("/healthz", partial(healthz, parts)),
            Route("/metrics", Exposition(partial(figures, parts)).answer),
            Route("/status", partial(status, parts)),
            Route("/nodes/{name}/pages", partial(resize, parts), methods=["POST"]),
            Route("/drill/points", partial(points, parts), methods=["POST"]),
            Route("/drill/marks", partial(marks, parts), methods=["POST"]),
            Route("/routes", partial(route_views.routes, parts)),
            Route(ONE_ROUTE, partial(route_views.one, parts)),
            Route(f"{ONE_ROUTE}/open", partial(route_views.opened, parts), methods=["POST"]),
            Route(f"{ONE_ROUTE}/try", partial(route_views.tried, parts), methods=["POST"]),
            Route(f"{ONE_ROUTE}/recover", partial(route_views.recovered, parts), methods=["POST"]),
            *console_routes(parts),
        ],
        exception_handlers={
            Refused: _on_refused,
            HTTPException: _on_http_exception,
            Exception: _on_exception,
        },
    )
    app.router.redirect_slashes = False
    return app


async def models(parts: Parts, started_unix_s: int, request: Request) -> Response:
    """Answer `GET /v1/models`: the one model, with the context window that is promised now."""
    authenticate(request.headers, parts.keys)
    return JSONResponse({"object": "list", "data": [_model(parts, started_unix_s)]})


async def model(parts: Parts, started_unix_s: int, request: Request) -> Response:
    """Answer `GET /v1/models/ID`."""
    authenticate(request.headers, parts.keys)
    if request.path_params["model"] != parts.offer.model:
        raise unknown_model()
    return JSONResponse(_model(parts, started_unix_s))


def _model(parts: Parts, started_unix_s: int) -> dict[str, str | int]:
    told: dict[str, str | int] = {
        "id": parts.offer.model,
        "object": "model",
        "created": started_unix_s,
        "owned_by": "kvairlock",
        # The name under which clients of other servers look for the context window.
        "max_model_len": parts.routes.promise(),
    }
    if parts.routes.commitment.output_tokens:
        told["max_output_tokens"] = parts.routes.promised_output()
    return told


async def healthz(parts: Parts, request: Request) -> Response:
    """Answer `GET /healthz`: 200 while at least one route is up."""
    told = {
        "status": "ok" if parts.routes.up() else "no_route",
        "nodes": {name: view.state.value for name, view in parts.routes.nodes.items()},
        "breakers": {str(r): kept.state.value for r, kept in parts.breakers.all.items()},
    }
    return JSONResponse(told, 200 if parts.routes.up() else 503)


async def status(parts: Parts, request: Request) -> Response:
    """Answer `GET /status`: what an operator sees of the whole stack."""
    require_operator(authenticate(request.headers, parts.keys))
    routes, settings = parts.routes, parts.settings
    states = {True: "up", False: "closed"}
    told = {
        "nodes": {name: _node(view) for name, view in routes.nodes.items()},
        "routes": {str(route): states[routes.is_up(route)] for route in routes.all},
        "closed": {str(r): why for r in routes.all if (why := routes.closure(r)) is not None},
        "route_tokens": {str(each.route): each.longest_tokens for each in routes.reports()},
        "breakers": {str(r): route_views.breaker(k) for r, k in parts.breakers.all.items()},
        "promise_tokens": routes.promise(),
        "configured_tokens": settings.commitment.context_tokens,
        "commitment": _commitment(parts),
        "drill_mode": "on" if settings.drill.enabled else "off",
        "guards_off": sorted(settings.drill.guards_off),
        "coverage": coverage(routes, parts.guarding.guards),
        "waivers": waivers(parts.guarding, int(time.time())),
        "in_flight": len(parts.desk),
        "in_flight_by_node": dict(parts.desk.load()),
    }
    return Response(msgspec.json.encode(told), media_type="application/json")


def _commitment(parts: Parts) -> dict[str, object]:
    judged, promised = parts.gate.look(), parts.routes.commitment
    return {
        "outcome": judged.outcome,
        "reach": promised.reach,
        "promised_tokens": promised.context_tokens,
        "published_tokens": judged.published_tokens,
        "promised_output_tokens": promised.output_tokens,
        "published_output_tokens": judged.published_output_tokens,
        "classes": promised.classes,
        "fingerprints": promised.fingerprints,
        "violations": judged.violations,
    }


def _node(view: NodeView) -> dict[str, object]:
    age_ms = None if view.reported_at is None else clock.elapsed_ms(view.reported_at)
    return {
        "role": view.role,
        "state": view.state,
        "why": view.why,
        "speaks": None if view.status is None else view.speaks,
        "report_ms": age_ms,
        "status": view.status,
    }


async def _on_refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refused):
        raise error
    return error.error.response()


async def _on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = CODES.get(error.status_code, "invalid_request")
    message = f"{request.method} {request.url.path[:128]}: {error.detail}"
    return ApiError(error.status_code, code, message, headers=error.headers or {}).response()


async def _on_exception(request: Request, error: Exception) -> Response:
    return ApiError(500, "internal_error", "the gateway failed; its log says why").response()
