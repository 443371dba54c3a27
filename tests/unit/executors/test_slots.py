"""Declared slots: growing at once, shrinking as they come free."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swell.core.resources import GpuHealth
from swell.executors.slots import slots

Held = st.frozensets(st.integers(0, 12), max_size=8)


def indices(declared: int, held: frozenset[int] = frozenset()) -> list[int]:
    return [slot.index for slot in slots(declared, held)]


def test_they_are_counted_from_zero_and_grow_at_once() -> None:
    assert indices(0) == []
    assert indices(2) == [0, 1]
    assert indices(4, frozenset({1})) == [0, 1, 2, 3]


def test_free_ones_go_first() -> None:
    assert indices(2, frozenset({2, 3})) == [2, 3]
    assert indices(2, frozenset({3})) == [0, 3]


def test_held_ones_beyond_the_number_stay_for_their_runs_only() -> None:
    found = slots(1, frozenset({0, 2, 3}))
    assert [(slot.index, slot.health) for slot in found] == [
        (0, GpuHealth.OK),
        (2, GpuHealth.QUARANTINED),
        (3, GpuHealth.QUARANTINED),
    ]
    assert "when its job has ended" in found[1].why


@given(st.integers(0, 12), Held)
def test_all_held_are_there_and_never_more_may_be_given_than_declared(declared: int, held: frozenset[int]) -> None:
    found = slots(declared, held)
    assert held <= {slot.index for slot in found}
    assert sum(slot.health is GpuHealth.OK for slot in found) == declared
    assert len(found) == max(declared, len(held))
