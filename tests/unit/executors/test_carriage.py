"""When the checkpoint of a job is brought to where its next run begins."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract.executor_benches import RealClock
from swell.checkpoints.carrying import Brought, Carrier, Target
from swell.core.observations import Rewound, RunFetching
from swell.core.resources import Node
from swell.core.state import JobRecord
from swell.executors.carriage import Carriage
from swell.executors.places import Floor
from swell.ports import Order
from unit.checkpoints.test_carrying import record
from unit.executors.test_request import CONTEXT

LOCAL, FAR = Node(name="here", executor="local"), Node(name="gpu1", executor="ssh")


class Van:
    """What was asked of the carrier."""

    def __init__(self, found: Brought) -> None:
        self.found = found
        self.brought: list[tuple[list[str], Node | None]] = []

    async def bring(self, record: JobRecord, targets: Mapping[str, Target], home: Node | None) -> Brought:
        self.brought.append((sorted(targets), home))
        return self.found


def sent(order: Order, found: Brought = Brought()) -> tuple[Order, Van, list[object]]:  # noqa: B008 - frozen
    """The order as it is carried out, what was carried, and what was told of it."""
    told: list[object] = []
    place = SimpleNamespace(transport=SimpleNamespace(holder=None))
    floor = SimpleNamespace(clock=RealClock(), place=lambda _: place, tell=told.append)
    van = Van(found)
    carriage = Carriage(cast(Carrier, van), cast(Floor, floor), lambda _: CONTEXT)
    return asyncio.run(carriage.brought(order)), van, told


def order(home: Node | None, *nodes: Node, **changes: Any) -> Order:
    return Order(record=record(**changes), nodes={node.name: node for node in nodes}, home=home)


@pytest.mark.parametrize(
    ("home", "nodes", "carried"),
    [
        (LOCAL, [LOCAL], False),  # all of the daemon's own machine have one directory
        (LOCAL, [LOCAL, FAR], True),
        (FAR, [LOCAL], True),
        (FAR, [FAR], True),
        (None, [FAR], True),
    ],
)
def test_a_checkpoint_is_brought_unless_it_is_there_already(
    home: Node | None, nodes: list[Node], carried: bool
) -> None:
    asked = order(home, *nodes)
    found, van, told = sent(asked)
    assert van.brought == ([(sorted(node.name for node in nodes), home)] if carried else [])
    assert (found is asked) is not carried
    assert [bool(one.detail) for one in told if isinstance(one, RunFetching)] == [True, False] * carried


def test_a_job_that_has_saved_nothing_has_nothing_to_be_brought() -> None:
    asked = order(None, FAR, epochs_done=0, epochs_saved=0)
    found, van, told = sent(asked)
    assert (found is asked, van.brought, told) == (True, [], [])


def test_a_run_is_told_where_it_begins_and_people_if_that_is_further_back() -> None:
    found, _, told = sent(order(FAR, LOCAL), Brought(epoch=3, why="gpu1 was lost"))
    assert (found.record.epochs_done, found.record.epochs_saved) == (3, 3)
    (rewound,) = [one for one in told if isinstance(one, Rewound)]
    assert (rewound.epoch, rewound.why) == (3, "gpu1 was lost")
