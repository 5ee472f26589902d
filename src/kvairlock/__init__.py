"""kvairlock: fail-closed tenant isolation for the KV caches of disaggregated LLM inference."""

__version__ = "0.1.0"
