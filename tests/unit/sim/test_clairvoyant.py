"""What clairvoyant runs are told is true: remaining time over speed is when the job ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.core.events import Event, RunEnded, TrainingBegan
from swell.core.state import State
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.clairvoyant import ClairvoyantBook, Table
from swell.sim.cluster import parse_cluster
from swell.sim.engine import Setup, Simulation
from swell.sim.pollux_workloads import read_pollux
from swell.sim.profiles import applications
from swell.sim.training_world import Training
from swell.speed.adaptive import PHASES


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_job_that_is_left_alone_ends_when_it_was_told_to(
    one_job: Path, profiles: Path, gpus: int, *, adaptive: bool
) -> None:
    """Also one that adapts its batch, and on these GPUs begins with its user's."""
    apps = applications(profiles)
    world = Training(apps, restart_s=25.0, per_node={"gpu": 4})
    oracle = ClairvoyantBook(world, {"gpu": 4})
    told_s: list[float] = []
    ended_s: list[float] = []

    def watch(state: State, event: Event) -> None:
        if isinstance(event, TrainingBegan):
            job = state.jobs[event.run.job]
            assert job.run is not None
            speed = oracle.speed(job, {"gpu": 4}).rate(job.run.allocation.gpus, 1, "gpu")
            told_s.append(event.at_s + oracle.remaining(job).at_speed_1_s / speed)
            assert oracle.remaining(job) is oracle.remaining(job), "worked out once"
        if isinstance(event, RunEnded):
            ended_s.append(event.at_s)

    setup = Setup(
        nodes=parse_cluster(f"1x{gpus}"), policy=policy_named("elastic-fifo"), placer=placer_named("consolidated")
    )
    workload = read_pollux(one_job, apps, adaptive=adaptive, gpus={"gpu": gpus})
    Simulation(setup, world, oracle, (watch,)).run(workload)
    assert len(ended_s) == 1
    assert told_s == pytest.approx(ended_s, rel=0.01)


def test_a_curve_is_of_the_part_of_training_that_a_job_is_in(profiles: Path) -> None:
    """With a fixed batch it is of all that is left, as the rate is."""
    app = next(iter(applications(profiles).values()))
    adaptive, fixed = (Table(app, batch, 4, {"gpu": 4}) for batch in (0, app.initial))
    for epoch in (0, app.epochs - 1):
        until = min(epoch + max(1, round(app.epochs / PHASES)), app.epochs)
        part_s = [adaptive.left_s("gpu", n, 1)[epoch] - adaptive.left_s("gpu", n, 1)[until] for n in (1, 2, 3, 4)]
        assert adaptive.curve("gpu", epoch)[4] == pytest.approx(part_s[0] / min(part_s))
        rates = [fixed.speed(epoch, frozenset()).rate(n, 1, "gpu") for n in (1, 2, 3, 4)]
        assert fixed.curve("gpu", epoch)[4] == max(rates)
