"""What jobs are on their way to, in the decision memory and back."""

from __future__ import annotations

from swell.core.resources import Allocation, Part, Share
from swell.core.targets import NO_TARGETS, Targets, targets_in, with_targets

TWO = Allocation(parts=(Part(node="a", gpus=(0, 1), cpus=2, memory_mib=10),), gpu_type="T4")
OTHER_TWO = Allocation(parts=(Part(node="b", gpus=(0, 1), cpus=2, memory_mib=10),), gpu_type="T4")
FOUR = Allocation(parts=(Part(node="b", gpus=(0, 1)), Part(node="c", gpus=(2, 3))), gpu_type="T4")
PIECE = Allocation(parts=(Part(node="a", gpus=(3,)),), gpu_type="T4", share=Share(memory_mib=500, milli=300))


def test_targets_come_back_as_they_went_in() -> None:
    targets = Targets(at_s=5.0, places={2: FOUR, 10: PIECE}, held={2: TWO})
    memory = with_targets({"jobs": {}}, targets)
    assert targets_in(memory) == targets
    assert list(targets_in(memory).places) == [2, 10]
    assert memory["jobs"] == {}


def test_memory_stays_the_same_object_where_nothing_is_on_its_way() -> None:
    memory: dict[str, object] = {"jobs": {"1": {}}}
    assert with_targets(memory, NO_TARGETS) is memory
    assert with_targets(with_targets(memory, Targets(at_s=1.0, held={1: TWO})), NO_TARGETS) == memory
    assert targets_in(memory) is NO_TARGETS


def test_a_job_stopped_to_be_resized_must_get_another_size() -> None:
    targets = Targets(places={1: FOUR}, held={1: TWO})
    assert targets.missed_by({1: TWO})
    assert targets.missed_by({1: OTHER_TWO}), "as many elsewhere was not worth a restart either"
    assert targets.missed_by({})
    assert not targets.missed_by({1: FOUR})


def test_a_job_stopped_to_be_moved_must_get_another_place() -> None:
    targets = Targets(places={1: OTHER_TWO}, held={1: TWO})
    assert targets.missed_by({1: TWO})
    assert targets.missed_by({})
    assert not targets.missed_by({1: OTHER_TWO})
    assert not targets.missed_by({1: FOUR})


def test_a_job_stopped_for_others_must_not_come_back_as_it_was() -> None:
    targets = Targets(places={2: FOUR}, held={1: TWO})
    assert targets.missed_by({1: TWO, 2: FOUR})
    assert not targets.missed_by({2: FOUR})
    assert not targets.missed_by({1: FOUR})
