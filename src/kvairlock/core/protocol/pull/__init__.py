"""Pull: prefill lends sealed pages, decode reads them and asks whether they stood.

    router --Asked--> lender: compute, seal, offer ----> transfer ticket, relayed by the router
    borrower --Claim--> lender --Lent--> borrower: read, one-sidedly, into own pages
    borrower --Validate--> lender --Validated--> borrower: judge what landed, admit, decode
    borrower --Release--> lender --Returned--> borrower

The request keeps the law of `handoff.HANDOFF` on both nodes; the loan has its own, `loans.LOAN`,
since it outlives the request: a read runs to its end, and every claim is given back.

A remote reader that asks afterwards is revocable: the lender takes its pages back by turning their
generation first, and a later question is answered with no. Decode is the writer of its own pages,
so those wait for its own read to be terminal, whatever the client did.
"""
