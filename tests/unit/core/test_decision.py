"""Reasons of a decision: plain ones, and ones that are made when somebody reads them."""

from __future__ import annotations

from swell.core.decision import Decision, Reason, ReasonCode, Reasons

PAUSED = (Reason(code=ReasonCode.PAUSED),)
STOPPING = (Reason(code=ReasonCode.STOPPING),)


def test_reasons_are_made_only_for_a_reader() -> None:
    made: list[int] = []

    def make() -> Reasons:
        made.append(1)
        return {1: PAUSED, 2: PAUSED}

    decision = Decision(grants={}, reasons={1: STOPPING}, explain=make)
    assert not made
    assert decision.why() == {1: STOPPING, 2: PAUSED}
    assert made == [1]


def test_a_decision_without_reasons_has_none() -> None:
    assert Decision(grants={}).why() == {}
