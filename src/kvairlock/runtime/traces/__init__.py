"""Traces: what one request did in each process and how long it took, as OpenTelemetry spans.

    gateway   request ---- attempt ----------------------------------+
                              | Submit.trace                         |
    decode                 decode - queue, receipt, land, read ...   +- drain, window
                                       | Grant.trace                     may end later
    prefill                         prefill - queue, compute, seal, write, ruling - drain

`table` says which spans and attributes there are. `tracer` is all that processes see. `export` is
the only module that needs the SDK, and `opening` imports it only where traces are wanted.
"""
