"""Errors in the shape of the OpenAI API, with the figures of refusals."""

from __future__ import annotations

import json

import pytest

from kvairlock.core.ends import End
from kvairlock.core.errors import REASONS, Reason, Refusal, Stage
from kvairlock.core.messages import Ended
from kvairlock.core.terms import TransferId
from kvairlock.gateway.errors import ApiError, from_refusal, refusal_of


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_keeps_its_status_code_and_retry(reason: Reason) -> None:
    row = REASONS[reason]
    error = from_refusal(Refusal(reason, Stage.DECODE, "why"))
    assert (error.status, error.code, error.message) == (row.http_status, row.code, "why")
    retry = {} if row.retry_after_s is None else {"retry-after": str(row.retry_after_s)}
    assert error.headers == retry
    assert error.body()["error"]["reason"] == reason.value


def test_a_refusal_with_figures_as_clients_read_it() -> None:
    message = "prompt 300 exceeds 256"
    refusal = Refusal(Reason.CONTEXT_LENGTH, Stage.GATEWAY, message, 300, 256, "context_window")
    response = from_refusal(refusal).response({"x-request-id": "cmpl-1"})
    assert response.status_code == 400
    assert response.headers["x-request-id"] == "cmpl-1"
    assert json.loads(bytes(response.body)) == {
        "error": {
            "message": "prompt 300 exceeds 256",
            "type": "invalid_request_error",
            "param": None,
            "code": "context_length_exceeded",
            "reason": "context_length",
            "stage": "gateway",
            "asked": 300,
            "limit": 256,
            "limit_name": "context_window",
        }
    }


def test_figures_of_zero_are_figures() -> None:
    refusal = Refusal(Reason.CAPACITY, Stage.DECODE, "none left", 0, 0, "pages")
    assert from_refusal(refusal).body()["error"]["limit"] == 0


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error"),
        (404, "invalid_request_error"), (405, "invalid_request_error"), (409, "conflict_error"),
        (413, "invalid_request_error"), (429, "rate_limit_error"), (500, "server_error"),
        (503, "server_error"), (504, "server_error"),
    ],
)  # fmt: skip
def test_types_by_status(status: int, kind: str) -> None:
    assert ApiError(status, "code", "message").type == kind


def test_only_completion_without_a_reason_is_success() -> None:
    name = TransferId("r/1")
    full = Refusal(Reason.CAPACITY, Stage.DECODE, "full")
    assert refusal_of(Ended(name, End.COMPLETED, None, 1, 1, 0, None)) is None
    assert refusal_of(Ended(name, End.COMPLETED, full, 1, 1, 0, None)) == full
    assert refusal_of(Ended(name, End.REJECTED, full, 0, 0, 0, None)) == full
    for end in set(End) - {End.COMPLETED}:
        refusal = refusal_of(Ended(name, end, None, 0, 0, 0, None))
        assert refusal is not None
        assert refusal.reason is Reason.MISSING_EVIDENCE
