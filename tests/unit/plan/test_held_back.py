"""Which queued jobs are not considered, and why: looked at once for all that wait for the same others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lives import T0
from swell.core import events as ev
from swell.core.decision import ReasonCode
from swell.core.dependencies import unmet
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import replay
from swell.core.state import State
from swell.plan.held_back import HeldBack


def submitted(*specs: JobSpec) -> State:
    return replay(ev.JobSubmitted(job=job, spec=spec, at_s=T0) for job, spec in enumerate(specs, 1))


PLAIN = JobSpec(name="x", command=("x",), gpus=GpuRequest(min=1, max=1))


def test_jobs_that_wait_for_the_same_others_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = replace(PLAIN, depends_on=(1,))
    state = submitted(PLAIN, *[waits] * 50)
    looks = list[JobSpec]()

    def looked(spec: JobSpec, state: State) -> list[int]:
        looks.append(spec)
        return unmet(spec, state)

    monkeypatch.setattr("swell.plan.held_back.unmet", looked)
    look = HeldBack(state, T0)
    reasons = [look.reason(record) for record in state.jobs.values()]
    assert reasons[0] is None
    assert {(reason.code, reason.detail["jobs"]) for reason in reasons[1:] if reason} == {(ReasonCode.DEPENDS, "1")}
    assert None not in reasons[1:]
    assert len(looks) == 2, "once for jobs that wait for nobody, once for the array"


def test_kinds_of_dependency_are_told_apart() -> None:
    kinds = replace(PLAIN, depends_on=(1,)), replace(PLAIN, after_any=(1,)), replace(PLAIN, after_failure=(1,))
    specs = [PLAIN, *kinds]
    waiting = submitted(*specs)
    assert [waits(waiting, job) for job in (1, 2, 3, 4)] == [False, True, True, True]
    events = [ev.JobSubmitted(job=job, spec=spec, at_s=T0) for job, spec in enumerate(specs, 1)]
    ended = replay([*events, ev.JobCancelled(job=1, at_s=T0 + 1.0)])
    assert [waits(ended, job) for job in (2, 3, 4)] == [True, False, False]


def waits(state: State, job: int) -> bool:
    return HeldBack(state, T0 + 2.0).reason(state.jobs[job]) is not None
