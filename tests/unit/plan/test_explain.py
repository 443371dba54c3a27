"""Every reason has a sentence, with its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.decision import Reason, ReasonCode
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Preemptible
from swell.core.lifecycle import apply, replay
from swell.core.resources import Allocation, Part
from swell.core.state import State
from swell.plan.explain import duration, explain, sentence, summary


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_reason_has_a_sentence_even_without_numbers(code: ReasonCode) -> None:
    assert len(sentence(Reason(code=code))) > 5


def test_numbers_are_in_the_sentence() -> None:
    assert "needs 8 GPUs, free for it: 2" in sentence(Reason(code=ReasonCode.CAPACITY, detail={"needs": 8, "free": 2}))


@pytest.mark.parametrize(("cost_s", "gain_s", "more"), [(30.0, 20.0, True), (30.0, 30.0, True), (30.0, 486.0, False)])
def test_a_change_costs_more_than_it_brings_only_if_it_does(cost_s: float, gain_s: float, more: bool) -> None:
    text = sentence(Reason(code=ReasonCode.NOT_WORTH, detail={"cost_s": cost_s, "gain_s": gain_s}))
    assert ("would cost more than it brings" in text) is more
    assert f"{cost_s:.0f} s" in text
    assert f"{gain_s:.0f} s" in text


def test_one_job_ahead_is_said_as_one() -> None:
    said = [sentence(Reason(code=ReasonCode.BEHIND, detail={"ahead": n, "first": 7})) for n in (1, 2)]
    assert said == ["job 7 comes first", "job 7 and 1 more come first"]


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
    assert found.ahead_count == 2
    assert found.summary == "failed before; tried again in 60 s"
    assert found.sentences[0] == "queued for 9 s with priority 0"


RUN = RunId(1, 1)
BEGAN = ev.TrainingBegan(run=RUN, at_s=10.0, epoch=0, epochs=90)
SAVED = (ev.CheckpointSeen(run=RUN, at_s=40.0), ev.CheckpointSeen(run=RUN, at_s=70.0))
OWN = ev.EpochEnded(run=RUN, at_s=60.0, epoch=50, count=50, unsaved=50, saves=ev.Saves.OWN)


@pytest.mark.parametrize(
    ("spec", "events", "agreed", "said"),
    [
        ({"checkpoint_dir": "c"}, (), None, "trains on until its next checkpoint; when that comes is not known"),
        ({"checkpoint_dir": "c"}, SAVED, None, "trains on until its next checkpoint; that is expected in 20 s"),
        ({}, (BEGAN,), (5, 0), "all its workers leave after 5 epochs"),
        ({}, (BEGAN,), (5, 3), "all its workers leave at step 3 of epoch 6"),
        ({}, (replace(BEGAN, unit="step"),), None, "trains on until its workers have agreed on a step"),
        ({}, (replace(BEGAN, unit="step"),), (0, 70), "all its workers leave at step 70"),
        (
            {},
            (replace(BEGAN, unit="step"), OWN),
            None,
            "trains on until its next checkpoint; when that comes is not known",
        ),
    ],
)
def test_a_run_that_is_to_stop_says_how_long_it_goes_on(
    spec: dict[str, str], events: tuple[ev.Event, ...], agreed: tuple[int, int] | None, said: str
) -> None:
    state = replay(
        [
            ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("x",), **spec), at_s=0.0),  # type: ignore[arg-type]
            ev.RunPlanned(run=RUN, allocation=Allocation(parts=(Part(node="n", gpus=(0,)),)), at_s=1.0),
            ev.RunStarted(run=RUN, at_s=2.0),
            *events,
            ev.RunStopRequested(run=RUN, why=ev.StopWhy.RESIZING, at_s=75.0),
            *((ev.StopAgreed(run=RUN, epoch=agreed[0], step=agreed[1], at_s=76.0),) if agreed else ()),
        ]
    )
    assert explain(state, state.jobs[1], (), now_s=80.0).sentences[1] == said


def test_never_ahead_is_who_has_or_wants_gpus_it_cannot_use() -> None:
    a, t = GpuRequest(types=("a100",)), GpuRequest(types=("t4",))
    wants = {1: a, 2: t, 3: GpuRequest(), 4: GpuRequest(exclude=("t4",)), 5: GpuRequest(), 6: GpuRequest(), 7: t}
    state = replay(
        ev.JobSubmitted(job=job, spec=JobSpec(name="j", command=("x",), gpus=gpus), at_s=job)
        for job, gpus in wants.items()
    )
    for job, gpu_type in ((1, "a100"), (5, "t4"), (6, "a100")):
        held = Allocation(parts=(Part(node="n", gpus=(0,)),), gpu_type=gpu_type)
        apply(state, ev.RunPlanned(run=RunId(job, 1), allocation=held, at_s=9.0))
    assert [found.job for found in explain(state, state.jobs[7], (), now_s=10.0).ahead] == [2, 3, 5]
    assert [found.job for found in explain(state, state.jobs[4], (), now_s=10.0).ahead] == [1, 3, 6]


def holding(state: State, job: int, gpus: int) -> None:
    held = Allocation(parts=(Part(node="n", gpus=tuple(range(gpus))),), gpu_type="slot")
    apply(state, ev.RunPlanned(run=RunId(job, 1), allocation=held, at_s=1.0))


def submitted(*specs: JobSpec) -> State:
    return replay([ev.JobSubmitted(job=job, spec=spec, at_s=job) for job, spec in enumerate(specs, 1)])


PLAIN = JobSpec(name="train", command=("x",), gpus=GpuRequest(min=1, max=4))


def test_a_job_that_cannot_be_stopped_is_named_and_why() -> None:
    state = submitted(PLAIN, replace(PLAIN, preemptible=Preemptible.NEVER), replace(PLAIN, priority=10))
    holding(state, 1, 3)
    holding(state, 2, 1)
    found = explain(state, state.jobs[3], (Reason(code=ReasonCode.CAPACITY, detail={"needs": 1, "free": 0}),), 9.0)
    assert found.ahead == (), "who has lower priority is not ahead"
    assert found.sentences[2:] == (
        "job 1 (train) keeps 3 GPUs until it ends: it neither uses the swell library nor names a checkpoint directory",
        "job 2 (train) keeps 1 GPU until it ends: it says preemptible: never",
    )


def test_many_that_cannot_be_stopped_are_counted() -> None:
    state = submitted(*[PLAIN] * 6)
    for job in range(1, 6):
        holding(state, job, 1)
    assert explain(state, state.jobs[6], (), 9.0).sentences[-1] == "2 more jobs hold GPUs and cannot be stopped"


def test_never_ahead_is_who_has_lower_priority_or_cannot_run_now() -> None:
    able = replace(PLAIN, uses_library=True)
    state = submitted(able, replace(able, priority=10), able, replace(able, depends_on=(1,)), able)
    holding(state, 1, 2)
    apply(state, ev.JobPaused(job=3, at_s=7.0))
    assert [a.job for a in explain(state, state.jobs[2], (), 9.0).ahead] == []
    assert [a.job for a in explain(state, state.jobs[5], (), 9.0).ahead] == [1, 2], "neither a paused nor a bound one"


def test_jobs_without_gpus_are_behind_each_other_only() -> None:
    light = replace(PLAIN, gpus=GpuRequest(min=0, max=0))
    state = submitted(PLAIN, light, light, PLAIN)
    holding(state, 1, 4)
    assert [a.job for a in explain(state, state.jobs[3], (), 9.0).ahead] == [2]
    assert [a.job for a in explain(state, state.jobs[4], (), 9.0).ahead] == [1]


def test_reasons_are_of_now() -> None:
    """A pass takes a moment; whoever has just resumed a job reads its answer before."""
    state = submitted(PLAIN)
    paused, behind = Reason(code=ReasonCode.PAUSED), Reason(code=ReasonCode.CAPACITY, detail={"needs": 1})
    waited = Reason(code=ReasonCode.BACKOFF, detail={"until_s": 5.0})
    assert summary(state.jobs[1], (paused,), 9.0) == "waits for the next decision"
    assert explain(state, state.jobs[1], (paused, waited), 9.0).sentences == ("queued for 8 s with priority 0",)
    apply(state, ev.JobPaused(job=1, at_s=8.0))
    assert summary(state.jobs[1], (behind,), 9.0).startswith("paused")


@pytest.mark.parametrize(("seconds", "text"), [(45, "45 s"), (720, "12 min"), (12_600, "3.5 h"), (200_000, "2.3 days")])
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_job_that_waits_again_says_why_it_waits_and_not_why_its_last_run_got_its_gpus() -> None:
    held = Allocation(parts=(Part(node="n", gpus=(0,)),), gpu_type="gpu")
    run = RunId(1, 1)
    state = replay(
        [
            ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("x",)), at_s=0.0),
            ev.RunPlanned(run=run, allocation=held, at_s=1.0, reason="1 GPU on n"),
        ]
    )
    assert summary(state.jobs[1], (), now_s=2.0) == "1 GPU on n"
    apply(state, ev.RunEnded(run=run, reason=ev.ExitReason.STOPPED, at_s=3.0))
    behind = Reason(code=ReasonCode.BEHIND, detail={"ahead": 1, "first": 7})
    assert summary(state.jobs[1], (behind,), now_s=4.0) == "job 7 comes first"
    assert summary(state.jobs[1], (), now_s=4.0) == "waits for the next decision"


def test_nobody_waits_for_another_0_s() -> None:
    said = {in_s: sentence(Reason(code=ReasonCode.SETTLING, detail={"in_s": in_s})) for in_s in (0.2, 5.0)}
    assert said[0.2] == "changed a moment ago; left alone until the next decision"
    assert said[5.0] == "changed a moment ago; left alone for another 5 s"
