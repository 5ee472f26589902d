"""Messages to bytes and back: version first, authenticated, nothing guessed.

`keys` holds the cluster's keys, `codec` turns messages into bodies, `frames` authenticates them on
one channel, `tickets` signs what routers carry.
"""
