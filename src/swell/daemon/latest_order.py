"""Finds the machines of a job's latest run, for reading the files that it left there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swell.core.errors import NotFound
from swell.core.evolve import evolve
from swell.core.resources import Node
from swell.core.state import JobRecord, Run
from swell.ports import Order


def latest_order(record: JobRecord, runs: Sequence[Run], nodes: Mapping[str, Node]) -> Order:
    """An order for the latest attempt. Raises NotFound if its first node was removed; others may be missing."""
    if not runs:
        raise NotFound(f"job {record.id} has no files: it has not started yet")
    run = runs[-1]
    first, *rest = run.allocation.nodes
    if first not in nodes:
        raise NotFound(f"the files of job {record.id} are on {first}, which was removed; `swell nodes` lists machines")
    found = {name: nodes[name] for name in (first, *rest) if name in nodes}
    return Order(record=evolve(record, run=run), nodes=found)
