"""The front of a stack: tenants, the contract, routes, and the OpenAI API over HTTP.

A tenant is decided here and nowhere else, from an API key; it reaches the nodes as a signed ticket.
Refusals by contract happen here too, and stand for nothing at the nodes, which judge by what they
hold.
"""
