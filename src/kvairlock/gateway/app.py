"""The HTTP application: the OpenAI API, and what operators look at.

POST /v1/completions, /v1/chat/completions    an API key
GET  /v1/models[/ID]        an API key
GET  /healthz, /metrics     open; they name nodes, never tenants
GET  /status                an operator's key
POST /drill/points          an operator's key, in drill mode only
"""

from __future__ import annotations

import time
from functools import partial

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kvairlock.gateway.auth import authenticate, require_operator
from kvairlock.gateway.drills import points
from kvairlock.gateway.endpoints import ENDPOINTS
from kvairlock.gateway.errors import ApiError, Refused, unknown_model
from kvairlock.gateway.exchange import Serving
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.routes import NodeView
from kvairlock.runtime import clock

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
            Route("/metrics", partial(metrics, parts)),
            Route("/status", partial(status, parts)),
            Route("/drill/points", partial(points, parts), methods=["POST"]),
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
    return {
        "id": parts.offer.model,
        "object": "model",
        "created": started_unix_s,
        "owned_by": "kvairlock",
        # The name under which clients of other servers look for the context window.
        "max_model_len": parts.routes.promise(),
    }


async def healthz(parts: Parts, request: Request) -> Response:
    """Answer `GET /healthz`: 200 while at least one route is up."""
    nodes = {name: view.state.value for name, view in parts.routes.nodes.items()}
    if parts.routes.up():
        return JSONResponse({"status": "ok", "nodes": nodes})
    return JSONResponse({"status": "no_route", "nodes": nodes}, 503)


async def metrics(parts: Parts, request: Request) -> Response:
    """Answer `GET /metrics`."""
    return Response(parts.meter.exposition(), headers={"content-type": CONTENT_TYPE_LATEST})


async def status(parts: Parts, request: Request) -> Response:
    """Answer `GET /status`: what an operator sees of the whole stack."""
    require_operator(authenticate(request.headers, parts.keys))
    routes, settings = parts.routes, parts.settings
    states = {True: "up", False: "closed"}
    told = {
        "nodes": {name: _node(view) for name, view in routes.nodes.items()},
        "routes": {str(route): states[routes.is_up(route)] for route in routes.all},
        "promise_tokens": routes.promise(),
        "configured_tokens": settings.commitment.context_tokens,
        "guards_off": sorted(settings.drill.guards_off),
        "in_flight": len(parts.desk),
        "in_flight_by_node": dict(parts.desk.load()),
    }
    return Response(msgspec.json.encode(told), media_type="application/json")


def _node(view: NodeView) -> dict[str, object]:
    heard_ms = None if view.heard_at is None else clock.elapsed_ms(view.heard_at)
    return {"role": view.role, "state": view.state, "heard_ms": heard_ms, "status": view.status}


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
