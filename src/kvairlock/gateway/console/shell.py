"""The page itself: static files of the package that hold nothing, with headers that keep it so.

A browser cannot send a key when it goes to an address, so the page is open to anybody and knows
nothing. What it shows comes later over `/console/live`, for a key. The headers forbid everything
that the page does not need: other hosts, inline code, frames around it, copies in a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from kvairlock.gateway.errors import ApiError, Refused

PAGE = "index.html"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), usb=()",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    body: bytes
    media: str


def assets() -> dict[str, Asset]:
    """Return all files of the page by name; they are few, and are read once."""
    folder = resources.files(__package__) / "static"
    found = {}
    for file in folder.iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in MEDIA:
            found[file.name] = Asset(file.read_bytes(), MEDIA[suffix])
    return found


class Shell:
    """Serves the page and its files."""

    def __init__(self) -> None:
        self._assets = assets()

    async def page(self, request: Request) -> Response:
        """Answer `GET /console`."""
        return _response(self._assets[PAGE])

    async def file(self, request: Request) -> Response:
        """Answer `GET /console/FILE`.

        Raises:
            Refused: 404, the page has no such file.
        """
        asset = self._assets.get(request.path_params["file"])
        if asset is None:
            raise Refused(ApiError(404, "not_found", "the console has no such file"))
        return _response(asset)


def _response(asset: Asset) -> Response:
    return Response(asset.body, headers=HEADERS, media_type=asset.media)
