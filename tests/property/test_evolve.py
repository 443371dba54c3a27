"""`evolve` does what `dataclasses.replace` does, `maker` what the class itself does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest
from hypothesis import given

from strategies import job_records, nodes, runs
from swell.core.evolve import changer, evolve, made_fast, maker
from swell.core.resources import Node, NodeCondition
from swell.core.state import JobRecord, JobState, Run


@given(job_records, runs, nodes)
def test_it_is_replace(job: JobRecord, run: Run, node: Node) -> None:
    assert evolve(job) == job
    assert evolve(job) is not job
    changed = evolve(job, state=JobState.LOST, run=run, attempts=7)
    assert changed == replace(job, state=JobState.LOST, run=run, attempts=7)
    assert evolve(run, ended_s=1.0) == replace(run, ended_s=1.0)
    assert changer(Run, "ended_s", "message")(run, 1.0, "over") == evolve(run, ended_s=1.0, message="over")
    assert evolve(node, condition=NodeCondition.LOST) == replace(node, condition=NodeCondition.LOST)


@given(job_records)
def test_never_changes_the_value_it_is_given_nor_makes_one_that_can_be_changed(job: JobRecord) -> None:
    before = replace(job)
    changed = evolve(job, attempts=job.attempts + 1)
    assert job == before
    with pytest.raises(FrozenInstanceError):
        changed.attempts = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        evolve(job, colour="blue")


@dataclass(frozen=True, slots=True)
class Checked:
    amount: int = 1

    def __post_init__(self) -> None:
        assert self.amount > 0


def test_values_that_check_themselves_are_refused() -> None:
    with pytest.raises(AssertionError, match="checks itself"):
        evolve(Checked(), amount=0)


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    name: str
    size: int = 3
    tags: Mapping[str, int] = field(default_factory=dict)


def test_a_class_that_is_made_fast_is_made_as_before() -> None:
    one, other = Quick(name="a"), Quick(name="a", size=4, tags={"x": 1})
    assert (one.name, one.size, one.tags) == ("a", 3, {})
    assert one.tags is not Quick(name="b").tags
    assert other == replace(one, size=4, tags={"x": 1})
    with pytest.raises(FrozenInstanceError):
        one.size = 5  # type: ignore[misc]
    with pytest.raises(TypeError, match="name"):
        Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        Quick(name="a", colour="blue")  # type: ignore[call-arg]


def test_a_maker_makes_what_its_class_makes() -> None:
    make = maker(Quick)
    one, other = make(name="a"), make(name="a", size=4, tags={"x": 1})
    assert type(one) is Quick
    assert one == Quick(name="a")
    assert one.tags is not make(name="b").tags
    assert other == Quick(name="a", size=4, tags={"x": 1})
    with pytest.raises(FrozenInstanceError):
        one.size = 5  # type: ignore[misc]
    with pytest.raises(TypeError, match="name"):
        make()  # type: ignore[call-arg]


def test_a_maker_refuses_values_that_check_themselves() -> None:
    with pytest.raises(AssertionError, match="checks itself"):
        maker(Checked)
