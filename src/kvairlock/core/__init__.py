"""The sans-IO core: who may hold, write, read and reuse pages of KV memory.

Nothing here knows a clock, a socket, a file or a random number: time and identifiers come in with
events, and what should happen goes out as effects. The same code serves embedded nodes, engine
adapters and the simulator.
"""
