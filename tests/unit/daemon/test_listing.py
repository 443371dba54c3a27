"""Jobs listed from memory are those the store lists, in the same order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.core import events as ev
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.daemon.listing import IN_MEMORY, active_jobs, lately_ended
from swell.ports import JobQuery
from swell.store.memory import MemoryStore

HOLDS = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")


def stored(fates: list[str]) -> MemoryStore:
    """Jobs that wait, run, or were cancelled; of two users and two batches."""
    events: list[ev.Event] = [ev.NodeObserved(node=Node(name="n1", gpus=(Gpu(index=0),)), at_s=0.0)]
    for job, fate in enumerate(fates, start=1):
        spec = JobSpec(name="j", command=("true",), user="ann" if job % 3 else "bob")
        events.append(ev.JobSubmitted(job=job, spec=spec, batch="b1" if job % 2 else "b2", at_s=float(job)))
        if fate == "runs":
            events.append(ev.RunPlanned(run=RunId(job, 1), allocation=HOLDS, at_s=float(job)))
        elif fate == "ended":
            events.append(ev.JobCancelled(job=job, at_s=float(job)))
    store = MemoryStore()
    store.append(1, events)
    return store


@pytest.mark.parametrize("group", sorted(IN_MEMORY))
@settings(max_examples=50, deadline=None)
@given(
    fates=st.lists(st.sampled_from(["waits", "runs", "ended"]), max_size=12),
    user=st.sampled_from(["", "ann", "bob"]),
    batch=st.sampled_from(["", "b1", "b2"]),
    after=st.integers(0, 13),
    limit=st.integers(1, 13),
)
def test_as_the_store_lists_them(group: str, fates: list[str], user: str, batch: str, after: int, limit: int) -> None:
    store = stored(fates)
    query = JobQuery(group=group, user=user, batch=batch, after=after, limit=limit)
    assert active_jobs(store.load(), query) == store.jobs(query)


def test_those_that_ended_last_come_first_whatever_their_ids() -> None:
    store = stored(["waits"] * 4)
    ends: list[ev.Event] = [ev.JobCancelled(job=job, at_s=100.0 + i) for i, job in enumerate((4, 1, 3))]
    store.append(store.load().seq + 1, ends)
    state = store.load()
    assert [job.id for job in lately_ended(state, JobQuery(limit=2))] == [3, 1]
    assert [job.id for job in lately_ended(state, JobQuery(user="bob"))] == [3]
    assert [job.id for job in lately_ended(state, JobQuery(batch="b2"))] == [4]
