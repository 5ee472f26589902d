"""Evidence of others: what vLLM and SGLang write about themselves, read for what could be a leak.

    prefill.log ---+                         +-> requests: lines that belong together
    decode.log.gz -+-> lines -> sightings ---+                 |
    metrics.txt ---+        (patterns)       +-> counters      v
                                                     |     candidates (rules)
                                                     +-> windows

These engines record what went wrong, not what was read. So there are candidates here, all of grade
inferred, and nothing is ever excluded: of a request that no line names, nothing is known.
"""
