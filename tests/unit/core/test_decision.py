"""Reasons that are put together when somebody reads them."""

from __future__ import annotations

from swell.core.decision import Decision, Deferred, Reason, ReasonCode, Reasons

PAUSED = (Reason(code=ReasonCode.PAUSED),)


def test_reasons_are_made_once_and_only_for_a_reader() -> None:
    made: list[int] = []

    def make() -> Reasons:
        made.append(1)
        return {1: PAUSED}

    reasons = Deferred(make)
    decision = Decision(grants={}, reasons=reasons)
    assert not made
    assert decision.reasons[1] == PAUSED
    assert (reasons.get(2, ()), list(reasons), len(reasons)) == ((), [1], 1)
    assert made == [1]


def test_deferred_reasons_are_equal_to_the_same_ones_said_at_once() -> None:
    assert Deferred(lambda: {1: PAUSED}) == {1: PAUSED}
    assert Deferred(lambda: {1: PAUSED}) != {2: PAUSED}
