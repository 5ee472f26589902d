"""kvairlock: fail-closed tenant isolation for the KV caches of disaggregated LLM inference."""

__version__ = "0.2.0.dev0"
