"""From logits to the next token, and how likely the model held it.

Temperature divides the logits first; then `top_p` keeps the nucleus: the smallest set of the most
likely tokens whose probabilities add up to `top_p` or more, so the token that crosses it is kept
(Holtzman et al. 2020; order and crossing as in vLLM's and transformers' samplers). One uniform
number picks from what is left, in proportion.

That number comes from Philox (Salmon et al. 2011), which turns a key and a counter into random bits
without any state: seed, choice and place are all that it depends on, never the requests that share
a batch. The logits of a trained model do, in their last bits; a draw that falls between them may
differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.messages import Sampling

Logits = NDArray[np.float32]
Weights = NDArray[np.float64]


class LogitsUnusable(ArithmeticError):
    """A row of logits has no likeliest token: NaN or infinity is in it, or nothing over -inf."""


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely a model held a token.

    Args:
        token: Its id.
        logprob: Natural logarithm of its probability, before temperature and `top_p`; finite.
    """

    token: int
    logprob: float


def greedy(logits: Logits) -> NDArray[np.int32]:
    """The most likely token of each row; the lowest id wins a tie.

    Args:
        logits: (rows, vocab).

    Returns:
        Token ids, int32 of shape (rows,).
    """
    tokens: NDArray[np.int32] = logits.argmax(axis=-1).astype(np.int32)
    return tokens


def draw(
    logits: Logits, samplings: Sequence[Sampling], choices: Sequence[int], places: Sequence[int]
) -> NDArray[np.int32]:
    """Draw the next token of each row; a row's draw depends on nothing of the others.

    Args:
        logits: (rows, vocab).
        samplings: How each row's token is drawn; temperature 0 takes what `greedy` takes.
        choices: The number of each row's choice within its request, from 0.
        places: How many tokens each row's answer has already.

    Returns:
        Token ids, int32 of shape (rows,).

    Raises:
        LogitsUnusable: When a row has no likeliest token, whatever its temperature.
    """
    if not np.isfinite(logits.max(axis=-1)).all():
        raise LogitsUnusable("no likeliest token in a row of logits")
    tokens = greedy(logits)
    for row, (sampling, choice, place) in enumerate(zip(samplings, choices, places, strict=True)):
        if sampling.temperature > 0:
            tokens[row] = _sample(logits[row], sampling, uniform(sampling.seed, choice, place))
    return tokens


def uniform(seed: int, choice: int, place: int) -> float:
    """The number that decides one draw, in [0, 1).

    Args:
        seed: Of the request, 0..2**63-1.
        choice: Which answer of it, from 0.
        place: Which token of that, from 0.
    """
    bits = int(np.random.Philox(key=seed | choice << 64, counter=place).random_raw())
    return (bits >> 11) * 2.0**-53


def likelihoods(
    logits: Logits, token: int, count: int
) -> tuple[Likelihood, tuple[Likelihood, ...]]:
    """How likely a row holds a token, and which tokens it holds likeliest.

    Args:
        logits: Of one row, (vocab,).
        token: The token that was taken.
        count: How many of the likeliest to return, fewer if there are fewer that are possible.

    Returns:
        The token's likelihood, and the likeliest, the likeliest first, the lowest id of equals.
    """
    below = logits.astype(np.float64) - logits.max()
    logprobs = below - np.log(np.exp(below).sum())
    likeliest = [Likelihood(int(i), float(logprobs[i])) for i in _largest(logprobs, count)]
    return Likelihood(token, float(logprobs[token])), tuple(likeliest)


def _largest(values: Weights, count: int) -> NDArray[np.intp]:
    """Indices of the `count` largest values over -inf, the largest first, the lowest of equals."""
    count = min(count, len(values))
    if count == 0:
        return np.empty(0, dtype=np.intp)
    least = np.partition(values, -count)[-count]
    found = np.flatnonzero((values >= least) & (values > -np.inf))
    return found[np.argsort(-values[found], kind="stable")][:count]


def _sample(logits: Logits, sampling: Sampling, number: float) -> int:
    weights = _weights(logits, sampling.temperature)
    kept = _nucleus(weights, sampling.top_p) if sampling.top_p < 1 else np.arange(len(weights))
    mass = np.cumsum(weights[kept])
    # A number below 1 leaves the product below the whole mass, also when rounded, so there is a
    # token; and as only a mass that grows passes it, never one without weight.
    return int(kept[np.searchsorted(mass, number * mass[-1], side="right")])


def _weights(logits: Logits, temperature: float) -> Weights:
    """Probabilities in units of the likeliest token's: (vocab,), the largest is 1."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the likeliest to -inf
        weights: Weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    return weights


def _nucleus(weights: Weights, top_p: float) -> NDArray[np.intp]:
    """Ids of the fewest tokens that hold `top_p` of all weight, the lowest of equals: (kept,)."""
    total = weights.sum()
    # All tokens below this share hold less than 1 - top_p together: the nucleus needs none of them,
    # and of a vocabulary of tens of thousands only some hundreds are left to sort.
    share = (1 - top_p) * total / len(weights)
    falling = np.sort(weights[weights >= share])[::-1]
    count = min(int(np.searchsorted(np.cumsum(falling), top_p * total)) + 1, len(falling))
    least = falling[count - 1]
    above, equal = np.flatnonzero(weights > least), np.flatnonzero(weights == least)
    return np.concatenate((above, equal[: count - len(above)]))
