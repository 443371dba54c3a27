"""Which runs a simulation that goes on from a live state begins with."""

from __future__ import annotations

from swell.core import events as ev
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import State
from swell.sim.forecast import Expected
from swell.sim.lanes import Watch
from swell.speed.book import Book

RUN = RunId(1, 1)


def live(*events: ev.Event) -> State:
    allocation = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")
    return replay(
        [
            ev.NodeObserved(node=Node(name="n1", gpus=(Gpu(index=0),)), at_s=0.0),
            ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("true",)), at_s=0.0),
            ev.RunPlanned(run=RUN, allocation=allocation, at_s=1.0),
            ev.RunStarted(run=RUN, at_s=2.0),
            *events,
        ]
    )


def test_a_run_that_holds_gpus_is_there_from_the_start_and_one_that_was_stopped_is_not() -> None:
    watch = Watch(10)
    watch.begin(live())
    assert list(watch._held) == [RUN]
    stopped = live(
        ev.RunStopRequested(run=RUN, why=ev.StopWhy.PREEMPTED, at_s=3.0),
        ev.RunEnded(run=RUN, reason=ev.ExitReason.STOPPED, at_s=4.0),
    )
    assert list(stopped.active) == [1]
    watch = Watch(10)
    watch.begin(stopped)
    assert not watch._held


def test_a_run_that_is_resized_in_place_goes_on_to_another_end() -> None:
    state = live()
    (end,) = Expected(Book(), state, 10.0, None).resized(state.jobs[1], 10.0)
    assert isinstance(end, ev.RunEnded)
    assert (end.run, end.at_s > 10.0) == (RUN, True)
