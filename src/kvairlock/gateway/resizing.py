"""`POST /nodes/NAME/pages`: an operator gives a node's pages to requests, or takes them away.

The answer says that the node was told. What it holds then it reports itself, with a higher epoch:
until that has come nobody believes the new figure, and after it nobody the old one.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kvairlock.core.messages import NodeStatus, Resize
from kvairlock.core.terms import NodeName
from kvairlock.gateway.auth import authenticate, require_operator
from kvairlock.gateway.bodies import ClientLeft, read_body, read_object
from kvairlock.gateway.errors import ApiError, Refused, bad_request
from kvairlock.gateway.nodes import NodeDown
from kvairlock.gateway.parts import Parts

BODY_BYTES_MAX = 4096


async def resize(parts: Parts, request: Request) -> Response:
    """Answer `POST /nodes/NAME/pages`.

    Raises:
        Refused: 401, 403, 404 for a node that there is not, 400 for what makes no sense or is more
            than the node has mapped, 503 if it is not heard, 501 if it has no form for it.
    """
    require_operator(authenticate(request.headers, parts.keys))
    name = _known(parts, request.path_params["name"])
    try:
        body = await read_body(request.headers, request.receive, BODY_BYTES_MAX)
    except ClientLeft:
        return Response(status_code=400)
    pages, status = _pages(read_object(body)), _believed(parts, name)
    mapped = sum(status.pages.values())
    if pages > mapped:
        raise _beyond(name, pages, mapped)
    _tell(parts, name, pages)
    told = {"node": name, "pages": pages, "mapped": mapped, "epoch": status.report.epoch}
    return JSONResponse({"sent": told}, 202)


def _known(parts: Parts, name: str) -> NodeName:
    nodes = parts.routes.nodes
    if NodeName(name) not in nodes:
        message = f"no such node; nodes are: {', '.join(nodes)}"
        raise Refused(ApiError(404, "not_found", message, "name"))
    return NodeName(name)


def _pages(fields: dict[str, object]) -> int:
    pages = fields.get("pages")
    if not isinstance(pages, int) or isinstance(pages, bool) or pages < 0:
        raise bad_request("`pages` must be an integer from 0", "pages")
    return pages


def _believed(parts: Parts, name: NodeName) -> NodeStatus:
    """Return the node's figures: what it has mapped is known from nobody else."""
    view = parts.routes.nodes[name]
    if view.believed is None:
        message = f"{name} is {view.state}: what it has mapped is not known"
        raise Refused(ApiError(503, NodeDown.code, message))
    return view.believed


def _beyond(name: NodeName, pages: int, mapped: int) -> Refused:
    message = f"{pages} pages are asked; {name} has mapped {mapped} at its start (mapped_pages)"
    figures: dict[str, str | int] = {
        "asked": pages,
        "limit": mapped,
        "limit_name": "mapped_pages",
    }
    error = ApiError(400, "pages_not_mapped", message, "pages", figures=figures)
    return Refused(error)


def _tell(parts: Parts, name: NodeName, pages: int) -> None:
    try:
        if not parts.nodes.can_say(name, Resize):
            message = f"{name} runs a version whose capacity does not change while it runs"
            raise Refused(ApiError(501, "not_implemented", message))
        parts.nodes.post(name, Resize(pages))
    except NodeDown as error:
        raise Refused(ApiError(503, error.code, str(error))) from None
