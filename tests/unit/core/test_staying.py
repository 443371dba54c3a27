"""Where a job may continue that has saved something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swell.core.ids import RunId
from swell.core.job import IfUnreachable, JobSpec
from swell.core.resources import Allocation, Contact, Node, Part
from swell.core.state import CheckpointCopy, JobRecord, Run
from swell.core.staying import NO_COPY, OPTED_OUT, WAITS, may_stay, stay_of

COPY = CheckpointCopy(epoch=4, at_s=1.0)
LARGE = CheckpointCopy(epoch=0, at_s=1.0, problem="it is too large")


def record(
    *, copy: CheckpointCopy | None = None, saved: int = 5, if_unreachable: str = "auto", **spec: Any
) -> JobRecord:
    wanted = JobSpec(name="j", command=("true",), if_unreachable=IfUnreachable(if_unreachable), **spec)
    run = Run(id=RunId(1, 1), allocation=Allocation(parts=(Part(node="a"),)), planned_s=0.0)
    return JobRecord(
        id=1, spec=wanted, submitted_s=0.0, run=run, uses_library=True, epochs_saved=saved, files_on="a", copy=copy
    )


def nodes(contact: Contact = Contact.HERE, executor: str = "ssh") -> dict[str, Node]:
    first = Node(name="a", executor=executor, contact=contact)
    return {"a": first, "b": Node(name="b", executor=executor), "c": Node(name="c", executor="ssh")}


@pytest.mark.parametrize(
    ("job", "contact", "why"),
    [
        (record(), Contact.HERE, ""),
        (record(copy=COPY), Contact.LOST, ""),
        (record(), Contact.LOST, NO_COPY),
        (record(saved=0), Contact.LOST, ""),  # nothing was saved: it begins again, wherever
        (record(copy=LARGE), Contact.HERE, "it is too large"),
        (record(copy=LARGE), Contact.LOST, "it is too large"),
        (record(copy_checkpoints=False), Contact.HERE, OPTED_OUT),
        (record(copy=COPY, if_unreachable="wait"), Contact.HERE, ""),
        (record(copy=COPY, if_unreachable="wait"), Contact.LOST, WAITS),
        (record(if_unreachable="move"), Contact.LOST, ""),
        (record(copy=LARGE, if_unreachable="move"), Contact.HERE, "it is too large"),
        (record(copy=LARGE, if_unreachable="move"), Contact.LOST, ""),
    ],
)
def test_where_it_may_continue(job: JobRecord, contact: Contact, why: str) -> None:
    stay = stay_of(job, nodes(contact))
    assert (stay.why if stay else "") == why
    assert stay is None or stay.nodes == ("a",)
    assert stay is None or may_stay(job)


def test_machines_that_share_its_directory_have_its_files_too() -> None:
    copy = replace(LARGE, shared_by=("b", "gone"))
    stay = stay_of(record(copy=copy), nodes(Contact.LOST))
    assert stay is not None
    assert stay.nodes == ("a", "b")


def test_all_slots_of_the_daemons_machine_are_one_machine() -> None:
    stay = stay_of(record(copy_checkpoints=False), nodes(executor="local"))
    assert stay is not None
    assert stay.nodes == ("a", "b")


def test_files_of_a_machine_that_was_removed_are_gone() -> None:
    assert stay_of(replace(record(copy=LARGE), files_on="removed"), nodes()) is None


def test_pods_have_volumes_of_their_cluster() -> None:
    assert stay_of(record(copy=LARGE), nodes(Contact.LOST, executor="kubernetes")) is None
