"""Files are asked for where the run's first node has them; pods are refused with a sentence."""

from __future__ import annotations

import asyncio

import pytest

from swell.core.errors import NotFound
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, Node, Part
from swell.core.state import JobRecord, Run
from swell.daemon.latest_order import latest_order
from swell.executors.files import FileRouter

RECORD = JobRecord(id=7, spec=JobSpec(name="a", command=("true",)), submitted_s=0.0)


def ran_on(*names: str) -> Run:
    parts = tuple(Part(node=name, gpus=(0,)) for name in names)
    return Run(id=RunId(7, 1), allocation=Allocation(parts=parts), planned_s=0.0)


def test_pods_are_refused_with_a_sentence() -> None:
    order = latest_order(RECORD, [ran_on("pool")], {"pool": Node(name="pool", executor="kubernetes")})
    with pytest.raises(NotFound, match=r"in its pods on pool.*volume"):
        asyncio.run(FileRouter({}).tree(order))


def test_a_job_that_has_not_started_and_a_machine_that_was_removed_are_said() -> None:
    with pytest.raises(NotFound, match="has not started yet"):
        latest_order(RECORD, [], {})
    with pytest.raises(NotFound, match="on gpu1, which was removed"):
        latest_order(RECORD, [ran_on("gpu1", "gpu2")], {"gpu2": Node(name="gpu2")})
