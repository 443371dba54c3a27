"""Hands GPUs to other jobs when the policy granted them to a job whose allowed nodes have none free.

A policy counts GPUs by type, not by node: it would grant the free GPUs of all nodes to a hundred jobs that may only run
on one full machine, and the GPUs would stay idle. Pure. Called by `plan.cycle` after each placement.
"""

from __future__ import annotations

from collections.abc import Mapping

from swell.core.capacity import Need, need_of_spec
from swell.core.caps import Left, largest_node, needs_of
from swell.core.decision import Grant, Layout
from swell.core.ids import JobId
from swell.core.resources import Cap
from swell.core.snapshot import Capacity, JobView, Snapshot

ROUNDS = 4
"""Maximum number of different confinements handled per pass; the next pass handles the rest."""

Confinement = tuple[object, ...]


def confinement(view: JobView, snapshot: Snapshot) -> Confinement | None:
    """The requirements that keep a job off some of the nodes that take jobs; None: it may use all of them."""
    need = need_of_spec(view.spec, 1, "")
    if all(need.accepts(node) for node in snapshot.nodes if node.schedulable):
        return None
    return _key(need)


def _key(need: Need) -> Confinement:
    return need.nodes, need.labels, need.image, need.pods


def spare(
    snapshot: Snapshot, grants: Mapping[JobId, Grant], layout: Layout, handed_on: Mapping[JobId, Grant]
) -> Snapshot | None:
    """A snapshot of the jobs without a grant, with the GPUs that were granted to confined jobs which cannot use them.
    None: there are no such GPUs. `handed_on`: grants that earlier rounds made of these GPUs."""
    by_id = snapshot.by_id
    shut_out = {job: by_id[job] for job in layout.unplaced if job in grants and by_id[job].allocation is None}
    keys = {job: confinement(view, snapshot) for job, view in shut_out.items()}
    left: dict[str, int] = {}
    confined = [job for job, key in keys.items() if key is not None]
    for sign, found in ((1, confined), (-1, list(handed_on))):
        for job in found:
            given = grants[job]
            left[given.gpu_type] = left.get(given.gpu_type, 0) + sign * given.n * by_id[job].gpu_milli
    if not any(milli > 0 for milli in left.values()):
        return None
    passed_over = {keys[job] for job in confined}
    jobs = tuple(
        job
        for job in snapshot.jobs
        if job.id not in grants and job.allocation is None and _key(need_of_spec(job.spec, 1, "")) not in passed_over
    )
    capacity = Capacity(gpu_milli={kind: max(0, milli) for kind, milli in sorted(left.items())})
    served = tuple(by_id[job] for job in grants if job not in shut_out)
    return snapshot.restricted(jobs, capacity, served, _caps_left(snapshot, grants, served)) if jobs else None


def _caps_left(snapshot: Snapshot, grants: Mapping[JobId, Grant], served: tuple[JobView, ...]) -> tuple[Cap, ...]:
    if not snapshot.caps:
        return ()
    left, largest = Left(snapshot.caps), largest_node(snapshot.nodes)
    for job in served:
        left.take(job.spec, needs_of(job.spec, grants[job.id].n, largest))
    return left.caps()
