"""The audit: whose pages was a request exposed to, answered from evidence alone."""
