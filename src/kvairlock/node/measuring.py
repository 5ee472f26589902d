"""What a node process can really hold, measured when its pool is backed by memory."""

from __future__ import annotations

import hashlib
import resource

from kvairlock import __version__
from kvairlock.core.promise.capacity import Basis, CapacityReport
from kvairlock.core.terms import LandingPolicy, Peer
from kvairlock.engine.layout import DTYPE, Layout
from kvairlock.engine.model import Model
from kvairlock.runtime.settings import DecodeSettings, PrefillSettings, Settings, SettingsWrong
from kvairlock.wire.versions import protocols

DESCRIPTORS_SPARE = 128
"""For links, evidence, sockets that greet, and what libraries open."""

MIB = 1024 * 1024
ONE_PROCESS = "tp1"
"""An embedded node computes its whole model itself."""

NodeSettings = PrefillSettings | DecodeSettings


def measure(settings: Settings, node: NodeSettings, model: Model, peer: Peer) -> CapacityReport:
    """State what this process holds: its pool is backed by memory by now, every page of it.

    Args:
        settings: The stack's settings.
        node: This node's own.
        model: The model as loaded.
        peer: Who measures.
    """
    layout = model.layout(settings.page_tokens)
    landing, windows = request_landing_pages(node), _windows(node)
    basis = Basis(
        model=layout.model,
        dtype=DTYPE,
        parallelism=ONE_PROCESS,
        memory_bytes=node.pages * layout.page_bytes,
        build=__version__,
        protocols=protocols(),
    )
    return CapacityReport(
        node=peer.node,
        role=peer.role,
        incarnation=peer.incarnation,
        epoch=0,
        fingerprint=_fingerprint(basis, layout.digest, node.pages, landing, peer.role),
        basis=basis,
        page_tokens=settings.page_tokens,
        pages=node.pages,
        landing_pages=landing,
        windows=windows,
        context_tokens=model.context_tokens_max,
        groups=(),
    )


def _fingerprint(basis: Basis, *parts: str | int) -> str:
    words = (*(str(getattr(basis, name)) for name in basis.__slots__), *map(str, parts))
    return hashlib.blake2b("\n".join(words).encode(), digest_size=8).hexdigest()


def require_memory(node: NodeSettings, layout: Layout, free_bytes: int) -> None:
    """Refuse a node whose pages this machine can't hold, before it takes the first of them.

    What other processes take afterwards is theirs to check.

    Args:
        node: The node's settings.
        layout: The layout of its pages.
        free_bytes: What this process may still take, its model already loaded.

    Raises:
        SettingsWrong: The message has the figures and says what to lower.
    """
    pages, landing = node.pages, _window_pages(node)
    asked_bytes = (pages + landing) * layout.page_bytes
    if asked_bytes <= free_bytes:
        return
    windows = f" and {landing} pages in windows" if landing else ""
    lower = "pages or landing_pages" if landing else "pages"
    raise SettingsWrong(
        f"{pages} pages{windows} of {layout.page_bytes // 1024} KiB take {asked_bytes // MIB} MiB, "
        f"but only {free_bytes // MIB} MiB of memory are free; lower {lower} of {node.name}"
    )


def landing_pages(node: DecodeSettings) -> int:
    """Return the pages that may be in windows at one time."""
    return node.landing_pages or node.pages


def windows_max() -> int:
    """Return how many windows there may be: one costs a descriptor, two while its grant waits."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (soft - DESCRIPTORS_SPARE) // 2)


def request_landing_pages(node: NodeSettings) -> int:
    """Return the pages that one request may land: no more than its tenant's share; 0 of prefill."""
    if isinstance(node, PrefillSettings):
        return 0
    return max(1, int(landing_pages(node) * node.tenant_share))


def _windows(node: NodeSettings) -> int:
    return 0 if isinstance(node, PrefillSettings) else windows_max()


def _window_pages(node: NodeSettings) -> int:
    """Pages of memory that windows may take beside the pool; direct windows are the pool."""
    if isinstance(node, PrefillSettings) or node.landing is LandingPolicy.DIRECT:
        return 0
    return landing_pages(node)
