"""Sites as bytes: immutable parts are shared, the rest is a copy, equal things have equal bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kvairlock.core.terms import Owner
from kvairlock.sim.values import Values


@dataclass(slots=True)
class Thing:
    owner: Owner
    array: np.ndarray
    kind: type = Owner
    other: list[object] = field(default_factory=list)


def a_thing() -> Thing:
    return Thing(Owner("alice", "a", 1), np.array([[1, 2], [3, 4]], dtype=np.int32))


def test_a_copy_is_equal_and_its_arrays_are_its_own() -> None:
    values, thing = Values(), a_thing()
    copy = values.read(values.write(thing))
    assert copy.owner == thing.owner
    assert copy.kind is Owner
    assert copy.array.dtype == np.int32
    copy.array[0, 0] = 9
    assert thing.array[0, 0] == 1


def test_immutable_values_are_kept_once() -> None:
    values = Values()
    one, other = (values.read(values.write(a_thing())) for _ in range(2))
    assert one.owner is other.owner
    assert one is not other


def test_equal_things_have_equal_bytes_and_unequal_ones_not() -> None:
    values, changed = Values(), a_thing()
    changed.array[1, 1] = 5
    assert values.write(a_thing()) == values.write(a_thing())
    assert values.write(changed) != values.write(a_thing())


def test_what_is_shared_stays_shared() -> None:
    values, thing = Values(), a_thing()
    thing.other = [thing.array, thing.array]
    copy = values.read(values.write(thing))
    assert copy.other[0] is copy.other[1] is copy.array
