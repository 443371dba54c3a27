"""Every reason has a sentence, with its numbers."""

from __future__ import annotations

import pytest

from swell.core import events as ev
from swell.core.decision import Reason, ReasonCode
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.plan.explain import duration, explain, sentence


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_has_a_sentence_even_without_numbers(code: ReasonCode) -> None:
    assert len(sentence(Reason(code=code))) > 5


def test_numbers_are_in_the_sentence() -> None:
    assert "needs 8 GPUs, free for it: 2" in sentence(Reason(code=ReasonCode.CAPACITY, detail={"needs": 8, "free": 2}))


def test_who_is_ahead_is_named_with_its_owner() -> None:
    state = replay(
        [
            ev.JobSubmitted(job=1, spec=JobSpec(name="first", command=("x",), user="ann"), at_s=0.0),
            ev.JobSubmitted(job=2, spec=JobSpec(name="second", command=("x",)), at_s=1.0),
            ev.JobSubmitted(job=3, spec=JobSpec(name="vip", command=("x",), user="bob", priority=10), at_s=2.0),
        ]
    )
    reason = Reason(code=ReasonCode.BACKOFF, detail={"until_s": 70.0})
    found = explain(state, state.jobs[2], (reason,), now_s=10.0)
    assert [(a.job, a.user) for a in found.ahead] == [(1, "ann"), (3, "bob")]
    assert found.summary == "failed before; tried again in 60 s"
    assert found.sentences[0] == "queued for 9 s with priority 0"


@pytest.mark.parametrize(("seconds", "text"), [(45, "45 s"), (720, "12 min"), (12_600, "3.5 h"), (200_000, "2.3 days")])
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
