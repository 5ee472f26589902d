"""What steers a transfer between nodes is never a client's to say: it is taken out of every body.

Only in drills, with the guard off, is a ticket in it believed.
"""

from __future__ import annotations

import base64
import binascii

from kvairlock.gateway.errors import bad_request

TRANSFER_PARAMETERS = frozenset(
    {
        "kv_transfer_params",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "data_parallel_rank",
        "disagg_prefill_dp_rank",
        "routed_dp_rank",
        "vllm_xargs",
    }
)
"""With these, serving engines let a request say where its cache comes from or goes to."""


def strip(fields: dict[str, object]) -> dict[str, object]:
    """Take the parameters that steer transfers out of a body, and return them."""
    return {name: fields.pop(name) for name in sorted(TRANSFER_PARAMETERS & set(fields))}


def believed_ticket(stripped: dict[str, object]) -> bytes | None:
    """Return the ticket in a client's transfer parameters. Only drills ever ask for it.

    Raises:
        Refused: 400, there is one that is not base64url.
    """
    parameters = stripped.get("kv_transfer_params")
    ticket = parameters.get("ticket") if isinstance(parameters, dict) else None
    if not isinstance(ticket, str):
        return None
    try:
        return base64.b64decode(ticket.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeError, ValueError):
        raise bad_request("the ticket is not base64url", "kv_transfer_params") from None
