"""The curves of a job's speed that people see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from swell.api.views import speed_view
from swell.core.job import GpuRequest, JobSpec
from swell.core.state import JobRecord
from swell.speed.describe import DescribedBook, Description

FOUND = Description(family="f", reference_type="A100", source="prior", confidence=0.0, curves={})


def test_a_curve_is_of_as_few_nodes_as_hold_the_gpus() -> None:
    asked: list[tuple[str, int, int]] = []

    def rate(gpus: int, nodes: int, gpu_type: str) -> float:
        asked.append((gpu_type, gpus, nodes))
        return gpus / nodes

    speed = SimpleNamespace(rate=rate)
    book = cast(DescribedBook, SimpleNamespace(describe=lambda *_: FOUND, speed=lambda *_: speed))
    spec = JobSpec(name="j", command=("true",), gpus=GpuRequest(min=1, max=5))
    view = speed_view(JobRecord(id=1, spec=spec, submitted_s=0.0), book, {"A100": 2, "L4": 0})
    assert [(gpus, nodes) for gpu_type, gpus, nodes in asked if gpu_type == "A100"] == [
        *((1, 1), (2, 1)),
        *((3, 2), (4, 2)),
        (5, 3),
    ]
    assert [nodes for gpu_type, _, nodes in asked if gpu_type == "L4"] == [1, 2, 3, 4, 5], "one per node, if any"
    assert view["curves"]["A100"][2] == (3, 1.5)
