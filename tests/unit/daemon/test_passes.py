"""When the next pass is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pytest

from swell.core import events as ev
from swell.core.decision import Decision
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.snapshot import Options, Snapshot
from swell.daemon.committer import Committer
from swell.daemon.effects import Effects
from swell.daemon.passes import COMPANY_S, Passes, Timing
from swell.daemon.timing import PassTimes
from swell.plan.deadlines import Patience
from swell.plan.snapshotter import Snapshotter
from swell.policy import registry
from swell.ports import Policy, Random
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore
from unit.policy.views import Inelastic

NOW_S = 1000.0


class Still:
    """A clock that stands still."""

    def now_s(self) -> float:
        return NOW_S

    def monotonic_s(self) -> float:
        return 5.0


WAITING = (
    ev.NodeObserved(node=Node(name="n1", gpus=(Gpu(index=0),), cpus=1), at_s=0.0),
    ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("true",)), at_s=0.0),
    ev.PolicySet(name="waker", placer="consolidated", at_s=0.0),
)


class Waker(Inelastic):
    """Gives nobody anything and wants to be asked again at `wake_s`."""

    name = "waker"
    wake_s: float | None = None

    def decide(self, snapshot: Snapshot, memory: Mapping[str, object], rng: Random) -> Decision:
        return Decision(grants={}, wake_s=self.wake_s)


@pytest.fixture(autouse=True)
def waker(monkeypatch: pytest.MonkeyPatch) -> None:
    policies: dict[str, Callable[[], Policy]] = {"waker": Waker}
    monkeypatch.setattr(registry, "_custom", policies)


def waited_s(events: Sequence[ev.Event], timing: Timing) -> float:
    """From one pass to the next, after these events."""

    async def main() -> float:
        store, book = MemoryStore(), Book()
        committer = Committer(store, Journal(store), book)
        await committer.open()
        await committer.commit(events)
        effects = cast(Effects, None)  # nothing is started or stopped here
        passes = Passes(committer, Snapshotter(book), effects, Still(), Options(), timing)
        passes.decider.choose("waker", "consolidated")
        seen: list[PassTimes] = []
        passes.watchers.append(seen.append)
        due_s = await passes.once()
        await committer.close()
        assert [times.policy for times in seen] == ["waker"], "whoever measures passes learns of each"
        return due_s

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("wake_s", "wait_s"), [(None, 10.0), (NOW_S + 3.0, 3.0), (NOW_S + 30.0, 10.0), (NOW_S, 10.0), (NOW_S - 1.0, 10.0)]
)
def test_a_pass_is_due_when_its_policy_wants_one_and_at_the_latest_after_the_interval(
    wake_s: float | None, wait_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Waker, "wake_s", wake_s)
    assert waited_s(WAITING, Timing(interval_s=10.0)) == wait_s


@pytest.mark.parametrize(("wake_s", "wait_s"), [(None, 4.0), (NOW_S + 3.0, 3.0), (NOW_S + 6.0, 4.0)])
def test_a_pass_is_due_at_the_next_time_limit_unless_its_policy_wants_one_before(
    wake_s: float | None, wait_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Waker, "wake_s", wake_s)
    allocation = Allocation(parts=(Part(node="n1", gpus=(0,)),))
    begun = ev.RunPlanned(run=RunId(1, 1), allocation=allocation, at_s=NOW_S)
    other = ev.JobSubmitted(job=2, spec=JobSpec(name="k", command=("true",)), at_s=0.0)
    assert waited_s([*WAITING, begun, other], Timing(interval_s=10.0, patience=Patience(gang_timeout_s=4.0))) == wait_s


@pytest.mark.parametrize(("last_pass_s", "slept_s"), [(0.0, 0.05), (0.4, 0.8), (60.0, COMPANY_S)])
def test_events_wait_for_company_the_longer_a_pass_takes_and_never_long(
    last_pass_s: float, slept_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(for_s: float) -> None:
        slept.append(for_s)

    async def main() -> None:
        store, book = MemoryStore(), Book()
        committer, effects = Committer(store, Journal(store), book), cast(Effects, None)
        passes = Passes(committer, Snapshotter(book), effects, Still(), Options(), Timing(coalesce_s=0.05))
        passes._last_pass_s = last_pass_s
        passes.wake()
        monkeypatch.setattr(asyncio, "sleep", sleep)
        await passes._wait(10.0)

    asyncio.run(main())
    assert slept == [slept_s]
