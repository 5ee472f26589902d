"""Errors as the OpenAI API shows them: `{"error": {message, type, param, code}}` and a status.

Figures of a refusal (asked, limit, limit_name, reason, stage) are added to the same object: the
official clients ignore them, people and drills read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from starlette.responses import JSONResponse

from kvairlock.core.ends import ENDS, ClientGets
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Ended

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
"""The `type` of an error by its status; others below 500 are `invalid_request_error`."""


@dataclass(frozen=True, slots=True)
class ApiError:
    """One error on its way to a client.

    Args:
        status: HTTP status.
        code: Closed machine-readable word.
        message: For people; holds no prompt, no key, no other tenant's name.
        param: The request parameter that is to blame, or None.
        headers: Response headers that belong to the error.
        figures: Further members of the error object.
    """

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The class of error, by status."""
        return "server_error" if self.status >= 500 else TYPES.get(self.status, TYPE_DEFAULT)

    def body(self) -> dict[str, dict[str, str | int | None]]:
        """Return the JSON body."""
        told = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**told, **self.figures}}

    def response(self, headers: Mapping[str, str] | None = None) -> JSONResponse:
        """Return the whole response.

        Args:
            headers: Further headers.
        """
        return JSONResponse(self.body(), self.status, {**(headers or {}), **self.headers})


TYPE_DEFAULT = "invalid_request_error"


class Refused(Exception):
    """A request that ends here with an error for its client."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> Refused:
    """Return a 400 that names the parameter."""
    return Refused(ApiError(400, code, message, param))


def unknown_model() -> Refused:
    """Return the 404 of a model that is not served here."""
    message = "this model does not exist here; GET /v1/models lists what does"
    return Refused(ApiError(404, "model_not_found", message, "model"))


def from_refusal(refusal: Refusal) -> ApiError:
    """Translate a refusal of the core, with its figures and its Retry-After."""
    row = refusal.row
    figures: dict[str, str | int] = {"reason": refusal.reason.value, "stage": refusal.stage.value}
    for name in ("asked", "limit", "limit_name"):
        if (value := getattr(refusal, name)) is not None:
            figures[name] = value
    error = ApiError(row.http_status, row.code, refusal.message, figures=figures)
    if row.retry_after_s is not None:
        error = replace(error, headers={"retry-after": str(row.retry_after_s)})
    return error


def refusal_of(ended: Ended) -> Refusal | None:
    """Return why a request did not complete; None only if it did.

    Args:
        ended: What the decode node said. An end that contradicts itself is no success.
    """
    if ended.refusal is not None:
        return ended.refusal
    if ENDS[ended.end].client is ClientGets.ANSWER:
        return None
    message = f"the decode node ended the request as {ended.end} and gave no reason"
    return Refusal(Reason.MISSING_EVIDENCE, Stage.GATEWAY, message)
