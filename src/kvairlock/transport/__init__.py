"""How KV bytes cross from one node's pool to another's, and how it is known that none can follow.

windows    the receiving side: grant, land, fence, close
writer     the sending side: one thread, no cancel
memory     a node's pages, and what may be mapped over them
memfile    memory files: fixed size, fully backed, sealable
mapping    mmap(2) with explicit addresses
checksums  seeded digests of page bytes
fences     a peer process that is gone
contract   what every transport must promise, as tests over a `contract_pair`;
           `contract_pool` is the same for the memory behind a pool
"""
