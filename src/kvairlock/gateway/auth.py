"""Who asks: the one place where an `Authorization` header becomes a tenant."""

from __future__ import annotations

from starlette.datastructures import Headers

from kvairlock.gateway.errors import ApiError, Refused
from kvairlock.gateway.keys import ApiKeys, KeyFileWrong, Principal


def authenticate(headers: Headers, keys: ApiKeys) -> Principal:
    """Return whose key a request carries.

    Raises:
        Refused: 401 without a known key, 503 while the key file cannot be used.
    """
    scheme, _, presented = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not presented.strip():
        raise _unauthorized(
            "an API key is needed: Authorization: Bearer kva-...", "missing_api_key"
        )
    try:
        principal = keys.find(presented.strip())
    except KeyFileWrong as error:
        raise Refused(ApiError(503, error.code, "the API keys cannot be read")) from error
    if principal is None:
        raise _unauthorized("this API key is not known", "invalid_api_key")
    return principal


def require_operator(principal: Principal) -> None:
    """Let only operators through.

    Raises:
        Refused: 403, the key is not an operator's.
    """
    if not principal.operator:
        raise Refused(ApiError(403, "operator_only", "this needs an operator's API key"))


def _unauthorized(message: str, code: str) -> Refused:
    return Refused(ApiError(401, code, message, headers={"www-authenticate": "Bearer"}))
