"""The daemon under faults, deterministically: any seed that fails fails again, and is told with as little as it needs.

500 seeds in `make test`; SWELL_FAULT_SEEDS=10000 (`make chaos`) runs more. To look at one: `played(scenario(SEED))`.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import pytest

from faults import world
from faults.scenario import Fault, Kind, Scenario, scenario
from faults.world import Broken, World, failure_of, played, shrunk

SEEDS = int(os.environ.get("SWELL_FAULT_SEEDS", "500"))
BATCHES = 20


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """Thousands of outages are logged as errors, as they should be."""
    logging.getLogger("swell").setLevel(logging.CRITICAL + 1)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_never_loses_doubles_or_overlaps_whatever_fails(batch: int) -> None:
    for seed in range(batch, SEEDS, BATCHES):
        if found := failure_of(scenario(seed)):
            raise AssertionError(f"seed {seed}: {found}\nas little as it needs: {shrunk(scenario(seed))}")


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_a_seed_replays_byte_for_byte(seed: int) -> None:
    assert played(scenario(seed)) == played(scenario(seed))


def test_a_failing_scenario_is_shrunk_to_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a daemon that takes silence for death a scenario fails; what is left of it is the silence."""

    def fails(scene: Scenario) -> str:
        return "overlap" if any(fault.kind is Kind.CUT for fault in scene.faults) else ""

    monkeypatch.setattr(world, "failure_of", fails)
    scene = replace(scenario(7), faults=tuple(Fault(kind=kind, at_s=1.0) for kind in Kind))
    least = shrunk(scene)
    assert [fault.kind for fault in least.faults] == [Kind.CUT]
    assert len(least.jobs) == 1


def test_a_daemon_that_takes_silence_for_death_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests bite: without the bound of the lease some attempt overlaps with the next."""
    monkeypatch.setattr("swell.core.contact.over_by_s", lambda renewed_s, lease_s, grace_s: renewed_s + 1.0)
    assert any(failure_of(scenario(seed)) for seed in range(400))


def test_a_job_that_was_answered_and_is_gone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = World.check_the_end

    def forgotten(self: World) -> None:
        self.submitted[len(self.scene.jobs)] = 99
        checked(self)

    monkeypatch.setattr(World, "check_the_end", forgotten)
    with pytest.raises(Broken, match="job 99 was answered and is lost"):
        played(replace(scenario(0), faults=()))
