"""How one page of KV memory is laid out, and the short name two nodes compare before they share.

A page holds `page_tokens` slots. For each layer it holds the keys of all slots, then their values;
zeros fill the rest, up to whole pages of the operating system, so that a page can be mapped on its
own:

    | layer 0 K [slots, key] | layer 0 V [slots, value] | layer 1 K | layer 1 V | ... | zeros |

Elements are float32. Nodes whose digests differ must not exchange pages.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

ELEMENT_BYTES = 4
MAPPED_BYTES = 4096
DTYPE = "float32"


@dataclass(frozen=True, slots=True)
class LayerWidths:
    """How many float32 elements one token has in one layer.

    Args:
        key: elements of the key.
        value: elements of the value.

    Raises:
        ValueError: when made with a width below 1.
    """

    key: int
    value: int

    def __post_init__(self) -> None:
        if self.key < 1 or self.value < 1:
            raise ValueError(f"layer widths must be at least 1, got {self.key} and {self.value}")


@dataclass(frozen=True, slots=True)
class LayerSpan:
    """Where one layer's keys and values begin inside a page, and where they end, in elements."""

    key_start: int
    value_start: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of a page for one model.

    Args:
        model: name and revision of the model, in one string; different weights, different string.
        page_tokens: token slots per page.
        layers: the widths of each layer, in the order of the layers.

    Raises:
        ValueError: when made without a model name, slots or layers.
    """

    model: str
    page_tokens: int
    layers: tuple[LayerWidths, ...]

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("a layout needs the name of its model")
        if self.page_tokens < 1:
            raise ValueError(f"a page needs at least 1 token slot, got {self.page_tokens}")
        if not self.layers:
            raise ValueError("a layout needs at least one layer")

    @property
    def token_bytes(self) -> int:
        """Bytes that one token takes over all layers."""
        return ELEMENT_BYTES * sum(widths.key + widths.value for widths in self.layers)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, padding included: a multiple of 4096."""
        return -(-self.page_tokens * self.token_bytes // MAPPED_BYTES) * MAPPED_BYTES

    def pages_for(self, tokens: int) -> int:
        """The pages that hold this many tokens.

        Raises:
            ValueError: when `tokens` is negative.
        """
        if tokens < 0:
            raise ValueError(f"tokens must not be negative, got {tokens}")
        return -(-tokens // self.page_tokens)

    def spans(self) -> Iterator[LayerSpan]:
        """The span of each layer inside a page, in the order of the layers."""
        start = 0
        for widths in self.layers:
            value_start = start + self.page_tokens * widths.key
            end = value_start + self.page_tokens * widths.value
            yield LayerSpan(start, value_start, end)
            start = end

    @property
    def digest(self) -> str:
        """16 hex digits over all that two nodes must agree on before they exchange pages."""
        widths = ",".join(f"{widths.key}+{widths.value}" for widths in self.layers)
        parts = (self.model, DTYPE, str(self.page_tokens), str(self.page_bytes), widths)
        return blake2b("\0".join(parts).encode(), digest_size=8, person=b"kvlayout").hexdigest()
