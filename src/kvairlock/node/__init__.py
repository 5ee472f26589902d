"""One prefill or decode process: the core's asyncio host, its engine, its transport, its links."""
