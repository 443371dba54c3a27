"""Computes forecasts, what-if answers, simulations, and advice on what would let a job start, off the event loop. Pure
except for its clock.

`Desk` takes requests as bytes and answers with bytes. `daemon.helper` runs it in a thread of the daemon if that is
cheap, else in a process of its own (`daemon.lookahead_process`), with a time limit. Each moment gets new policies and
placers, which share no cache with live decisions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from swell.core.errors import SwellError
from swell.core.ids import JobId
from swell.daemon.moments import Answers, Difference, KnownBook, Moment, Receiver, packed, unpacked
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.ports import Placer, Policy
from swell.sim.cheapest_change import Trial
from swell.sim.cluster import cluster_name
from swell.sim.comparison import Trace, encoded, of_queue, of_workload
from swell.sim.forecast import Change, Effect, Forecast, forecast, what_if
from swell.sim.generate import Recipe

ADVICE_CPU_S = 1.0
"""Time limit of the search for changes that would start one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advise:
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The change that would let the job start, in words; empty if there is none, or it starts anyway."""

    text: str = ""
    missing: str = ""  # a sentence about the part of the answer that is missing; empty: it is complete


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """A what-if: `change` with its policy and placer by name; `answers` of the speed book for the jobs it submits."""

    change: Change
    policy: str = ""
    placer: str = ""
    answers: Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresee:
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulate:
    """Several policies on the same jobs. `source` None: the present jobs."""

    policies: tuple[str, ...]
    placer: str = ""  # empty: the present one
    source: Recipe | Trace | None = None
    cluster: str = ""  # for a source; empty: one like the present
    most_jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """`document` is JSON (`sim.comparison`); empty if there is none, and `refusal` says why."""

    document: bytes = b""
    refusal: str = ""


Task = Advise | Compare | Foresee | Simulate
Result = Advice | Sequence[Effect] | Forecast | Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`moment` is None if it is the same as in the request before."""

    moment: Difference | None
    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answer to a request. `failure`: why there is no result; empty: there is one."""

    result: Result | None = None
    failure: str = ""
    cpu_s: float = 0.0


class Desk:
    def __init__(self) -> None:
        self._receiver = Receiver()
        self._moment: Moment | None = None
        self._trial: Trial | None = None  # of that moment

    def handle(self, data: bytes) -> bytes:
        began_s = time.thread_time()
        try:
            request = unpacked(data)
            assert isinstance(request, Request)
            if request.moment is not None:
                self._moment, self._trial = self._receiver.moment(request.moment), None
            assert self._moment is not None  # the first request has one
            result = self._do(request.task, self._moment)
        except Exception as error:
            self._trial = None
            return packed(Done(failure=f"{type(error).__name__}: {error}", cpu_s=time.thread_time() - began_s))
        return packed(Done(result=result, cpu_s=time.thread_time() - began_s))

    def _do(self, task: Task, now: Moment) -> Result:
        if isinstance(task, Advise):
            return self._advise(task.job, now)
        if isinstance(task, Compare):
            return _compare(task, now)
        if isinstance(task, Simulate):
            return _simulate(task, now)
        policy, placer = _made(now)
        return forecast(
            now.state, KnownBook(now.answers, now.alone), policy, placer, now.options, now.now_s, task.samples
        )

    def _advise(self, job: JobId, now: Moment) -> Advice:
        began_s = time.thread_time()
        if self._trial is None:
            self._trial = Trial(now.state, KnownBook(now.answers, now.alone), *_made(now), now.options, now.now_s)
        found = self._trial.cheapest(job, lambda: time.thread_time() - began_s > ADVICE_CPU_S)
        left_out = f"there was no time to try {found.left_out} more changes that might start it sooner"
        return Advice(text=found.change.advice if found.change else "", missing=left_out if found.left_out else "")


def _made(now: Moment) -> tuple[Policy, Placer]:
    return policy_named(now.state.policy), placer_named(now.state.placer)


def _compare(task: Compare, now: Moment) -> Sequence[Effect]:
    policy, placer = _made(now)
    change = replace(
        task.change,
        policy=policy_named(task.policy) if task.policy else None,
        placer=placer_named(task.placer) if task.placer else None,
    )
    book = KnownBook({**now.answers, **task.answers}, now.alone)
    return what_if(now.state, book, policy, placer, now.options, now.now_s, change)


def _simulate(task: Simulate, now: Moment) -> Simulation:
    placer = task.placer or now.state.placer
    try:
        if task.source is None:
            book = KnownBook(now.answers, now.alone)
            found = of_queue(now.state, book, now.options, now.now_s, task.policies, placer)
        else:
            cluster = task.cluster or cluster_name(now.state.nodes.values())
            found = of_workload(task.source, cluster, task.policies, placer, task.most_jobs)
    except SwellError as error:
        return Simulation(refusal=str(error))
    return Simulation(document=encoded(found))
