"""The stories: what the protocol does when all is well, and what it does when it is not."""

from __future__ import annotations

from dataclasses import replace

from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy, Reader
from kvairlock.sim.setup import DECODE_LIMITS, Ask, Direction, Flaw, Setup, Theft
from kvairlock.sim.state import Budget
from tests.transcripts.telling import Story

ALICE, BOB = Ask("alice", "a", 4), Ask("bob", "b", 4)
BOTH = (ALICE, BOB)
PULL = Direction.PULL
RECOVERS = replace(DECODE_LIMITS, recompute_tokens_per_min=8)

STORIES: tuple[Story, ...] = (
    Story(
        "push",
        "Push: a prompt is handed over, and nothing goes wrong",
        """Decode reserves all pages first, writes down what it expects, and grants a window that
        is good for this one attempt. Prefill computes, closes the pages, writes them into the
        window, and states what it really did. Decode compares that, field by field, with its own
        figures, brings the bytes out of everybody's reach, and compares their digests. Only then
        may it read.""",
        Setup((ALICE,)),
    ),
    Story(
        "push-refused-at-the-gateway",
        "A prompt that no route can hold is refused at the gateway",
        """The gateway knows what the nodes measured about themselves, and bothers nobody with
        what they can't hold.""",
        Setup((Ask("alice", "a", 8),)),
    ),
    Story(
        "push-refused-by-prefill",
        "A prompt that prefill can't hold crosses as a refusal",
        """Here the gateway does not look. Decode could hold the prompt, so it grants a window;
        prefill judges by its own pool, computes nothing, and says so in a receipt that has nothing
        in it which could pass for success. The client is told the reason and the figures.""",
        Setup(
            (Ask("alice", "a", 8),),
            prefill_pages=3,
            decode_pages=5,
            tenant_pages=5,
            guards_off=frozenset({Guard.CONTRACT}),
        ),
    ),
    Story(
        "push-client-leaves-during-the-write",
        "The client leaves while prefill writes",
        """There is no cancel for a write: it runs to its own end. The window is a file of its own,
        so decode's pages are free at once; the file counts as memory in use until its writer is
        known to be done.""",
        Setup((ALICE,)),
        Budget(cancels=1),
        ("stores a page in the window of a/1", "the client of a/1 leaves"),
    ),
    Story(
        "push-late-write",
        "A write goes on while the next request has the pages",
        """Alice leaves in the middle of the write, and bob gets the pages that were hers. The
        rest of her prompt lands in a file that nobody reads any more, and bob reads what is
        his.""",
        Setup(BOTH, prefill_pages=4),
        Budget(cancels=1),
        (
            "hold bob asks",
            "stores a page in the window of a/1",
            "hold the window of a/1",
            "the client of a/1 leaves",
            "free bob asks",
            "brings the window of b/1",
            "free the window of a/1",
            "stores a page in the window of a/1",
        ),
    ),
    Story(
        "push-late-write-without-drain",
        "The same late write, in a system that does not wait",
        """Why windows are files of their own, and why pages drain. Here remote writes land in
        the pool itself, and pages are free as soon as their client has left. Every check of bob's
        receipt and of his bytes passes; then the rest of alice's write lands. `!!` marks what must
        never be.""",
        Setup(
            BOTH,
            prefill_pages=4,
            policy=LandingPolicy.DIRECT,
            guards_off=frozenset({Guard.DRAIN}),
        ),
        Budget(cancels=1, reorders=1),
        (
            "hold bob asks",
            "stores a page in the window of a/1",
            "hold the window of a/1",
            "hold prefill hears from decode: a/1 has ended",
            "the client of a/1 leaves",
            "bob asks",
            "overtaken",
            "brings the window of b/1",
            "free the window of a/1",
            "stores a page in the window of a/1",
            "begins a step",
            "free prefill hears from decode: a/1 has ended",
        ),
    ),
    Story(
        "push-copy-after-success",
        "A copy of a write lands after the transfer was admitted",
        """Transports retry. The copy lands in the file that was granted, and decode reads its own
        copy of what it judged.""",
        Setup((ALICE,), copies=True),
        Budget(copies=1),
        ("begins a step", "the transport repeats a page"),
    ),
    Story(
        "push-writer-keeps-the-window",
        "Decode waits until the kernel says that nobody can write",
        """Policy seal: nothing is copied, so the window itself must be out of reach. Here prefill
        sends its receipt before its write has ended. The kernel refuses to seal a file that
        somebody can still write into, and decode asks again; once the file is sealed, nobody
        can.""",
        Setup((replace(ALICE, flaw=Flaw.EARLY),), policy=LandingPolicy.SEAL),
        Budget(timeouts=1),
        (
            "digests the sealed pages",
            "hold the window of a/1",
            "decode hears from prefill: receipt",
            "free the window of a/1",
            "stores a page",
            "brings the window of a/1",
            "hold brings the window",
            "has ended its write",
            "free brings the window",
            "decode: a deadline passes",
        ),
    ),
    Story(
        "push-receipt-lost",
        "The receipt is lost, and decode computes the prompt itself",
        """Missing evidence is not success. Decode waits up to its deadline, gives everything of
        the first try back, and computes the prompt in pages of a new lease, as far as its budget
        for that goes.""",
        Setup((ALICE,), decode_limits=RECOVERS),
        Budget(drops=1),
        ("lost, from prefill to decode: receipt",),
    ),
    Story(
        "push-receipt-lost-without-budget",
        "The receipt is lost, and there is no budget to compute the prompt again",
        """The same, where recovery was not configured: the request fails, with the reason.""",
        Setup((ALICE,)),
        Budget(drops=1),
        ("lost, from prefill to decode: receipt",),
    ),
    Story(
        "push-prefill-dies",
        "Prefill dies in the middle of a write",
        """A silent peer proves nothing, but the end of its process does: the kernel tells it, and
        the window comes back. The request fails at once. Prefill starts again as another life,
        which knows nothing of the first, and serves bob.""",
        Setup(BOTH),
        Budget(crashes=1),
        (
            "hold bob asks",
            "stores a page in the window of a/1",
            "prefill ends and starts again",
            "the link between decode and prefill is there again",
            "free bob asks",
        ),
    ),
    Story(
        "push-link-breaks",
        "The link breaks in the middle of a write",
        """Prefill lives, and may write for as long as it likes: the request fails, but its window
        stays until there is evidence. Here the kernel gives it, once prefill's write has ended;
        no message has to come.""",
        Setup((ALICE,)),
        Budget(cuts=1),
        (
            "stores a page in the window of a/1",
            "the link between decode and prefill breaks",
            "hold the window of a/1",
            "decode notices",
            "free the window of a/1",
        ),
    ),
    Story(
        "push-old-life",
        "A receipt of a life that has ended comes late",
        """The receipt was on its way when prefill ended, and arrives on the link of its next life.
        The key of a channel names both lives, so decode does not even read it.""",
        Setup((ALICE,)),
        Budget(crashes=1),
        (
            "has ended its write",
            "hold decode hears",
            "prefill ends and starts again",
            "the link between decode and prefill is there again",
            "free decode hears",
        ),
    ),
    Story(
        "push-grant-repeated",
        "A grant comes twice",
        """The prompt is computed once. The repeat finds the window in use, and changes nothing.""",
        Setup((ALICE,)),
        Budget(duplicates=1),
        ("comes twice",),
    ),
    Story(
        "push-rejected-and-reported",
        "Prefill rejects a prompt, and reports it all the same",
        """A broken engine noted the rejection and computed nothing, and its receipt has all the
        figures of a success except the outcome. Only `completed` may make pages readable.""",
        Setup((replace(ALICE, flaw=Flaw.REJECTED),)),
    ),
    Story(
        "push-bytes-torn",
        "What landed is not what prefill wrote",
        """The receipt is right in every field, and a foreign byte came with the last page. The
        digests of what decode itself holds differ from those that were stated. Nobody vouches for
        these pages: they are quarantined, zeroed, and free again on the same evidence as all.""",
        Setup((replace(ALICE, flaw=Flaw.TORN), BOB)),
    ),
    Story(
        "push-forged-receipt",
        "Somebody without the key sends a receipt of success",
        """It fits the window digest for digest, and is refused before it is read: frames are
        authenticated as they came.""",
        Setup((ALICE,)),
        Budget(forgeries=1),
        ("prefill hears from decode: grant", "somebody without the key"),
    ),
    Story(
        "push-stolen-ticket",
        "A router presents alice's ticket for mallory",
        """A ticket says who asks, and for which input. Both nodes look at it themselves.""",
        Setup((ALICE, Ask("mallory", "m", 4, stolen="a/1", theft=Theft.BY_ROUTER))),
        Budget(),
        ("alice asks", "mallory asks"),
    ),
    Story(
        "push-prefix-reused",
        "Two requests of one scope begin alike",
        """What a finished prompt has computed is kept for its declared scope, and a later prompt
        of the same scope is not computed again. Decode gets every page of every prompt, into pages
        of its own.""",
        Setup(
            (
                Ask("alice", "a", 4, scope="team", content=1),
                Ask("carol", "c", 4, scope="team", content=1),
            ),
            prefill_pages=4,
            decode_pages=3,
        ),
        hints=("prefill hears from decode: a/1 is admitted",),
    ),
    Story(
        "push-waits-for-pages",
        "Bob waits for the pages that alice still has",
        """Pages for the whole answer are reserved before anything is asked of prefill, so bob
        waits in decode's queue, and is granted his window in the turn in which alice's pages are
        free.""",
        Setup(BOTH),
        hints=("alice asks", "bob asks"),
    ),
    Story(
        "push-decode-suspended",
        "Decode stands still, and wakes up after all its deadlines",
        """The receipt arrived while decode was suspended. Its clock went on, and deadlines that
        have passed come before messages: the receipt finds nothing open.""",
        Setup((ALICE,)),
        Budget(suspensions=1),
        (
            "stores a page",
            "decode stands still",
            "hold decode goes on",
            "has ended its write",
            "free decode goes on",
        ),
    ),
    Story(
        "pull",
        "Pull: decode reads what prefill lends, and nothing goes wrong",
        """Prefill computes first and offers its pages; the router carries an offer that names no
        page. Decode claims, is told where the pages are and what was done, reads them into pages of
        its own, and asks whether they stood to the end of its read. Until the answer nothing may
        use them.""",
        Setup((ALICE,), direction=PULL),
    ),
    Story(
        "pull-claim-repeated",
        "The answer to a claim is lost",
        """A claim is a hold. Decode says it again under the same name, and is answered the same;
        anybody else would be refused.""",
        Setup((ALICE,), direction=PULL),
        Budget(drops=1, timeouts=1),
        ("lost, from prefill to decode: pages", "decode: a deadline passes"),
    ),
    Story(
        "pull-offer-expired",
        "The claim comes when the offer has expired",
        """Prefill keeps what nobody claims for a while only. The refusal is a receipt that lends
        nothing.""",
        Setup((ALICE,), direction=PULL),
        Budget(timeouts=1),
        ("the gateway refers a/1", "prefill: a deadline passes"),
    ),
    Story(
        "pull-revoked-during-the-read",
        "Pages are taken back during a read",
        """A reader that asks afterwards can be revoked. Prefill's time is up, and bob's prompt
        gets the pages: their generation turned before the first new byte. Alice's decode has read
        a mixture, asks, and is told that the pages did not stand. It uses none of it.""",
        Setup(BOTH, direction=PULL),
        Budget(timeouts=1),
        (
            "hold bob asks",
            "decode reads a page of a/1",
            "hold decode reads a page of a/1",
            "prefill: a deadline passes",
            "free bob asks",
            "bob asks",
            "prefill has computed b/1",
            "free decode reads a page of a/1",
        ),
    ),
    Story(
        "pull-client-leaves-during-the-read",
        "The client leaves while decode reads",
        """In pull decode is the writer of its own pages: they drain until its own read has ended,
        whatever the client did. Then the claim is given back.""",
        Setup((ALICE,), direction=PULL),
        Budget(cancels=1),
        ("decode reads a page of a/1", "the client of a/1 leaves"),
    ),
    Story(
        "pull-lender-dies",
        "Prefill dies while decode reads",
        """There is nobody left to say that the pages stood, so they did not.""",
        Setup((ALICE,), direction=PULL),
        Budget(crashes=1),
        ("decode reads a page of a/1", "prefill ends and starts again"),
    ),
    Story(
        "pull-reader-that-does-not-ask",
        "A reader that does not ask afterwards can't be revoked",
        """It counts as a writer does. The lender's time is up and the request has ended, but the
        pages wait until the reader gives its claim back.""",
        Setup((ALICE,), direction=PULL, reader=Reader.TRUSTING),
        Budget(timeouts=1),
        ("decode reads a page of a/1", "prefill: a deadline passes"),
    ),
)
