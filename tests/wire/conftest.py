"""One Hypothesis profile without hidden seeds for the tests of the wire."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "wire",
    derandomize=True,
    print_blob=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("wire")
