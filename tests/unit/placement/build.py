"""Small clusters and jobs for placement tests, and the laws that every layout obeys."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from swell.core.capacity import cpus_of, realm_of
from swell.core.decision import Grant, Layout
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.resources import GPU_MILLI, Allocation, Gpu, Node, NodeCondition, Part, Share
from swell.core.snapshot import Curve, JobView, Options, Snapshot, capacity_of
from swell.core.state import JobState
from swell.placement.sharing import share_now
from swell.ports import Placed


@dataclass(frozen=True, slots=True)
class Law:
    """Speed with a known price for each further node."""

    max_gpus: int = 64
    per_node: float = 0.8

    def curve(self, gpu_type: str) -> Curve:
        return tuple(float(k) for k in range(self.max_gpus + 1))

    def rate(self, gpus: int, nodes: int, gpu_type: str) -> float:
        return gpus * self.per_node ** (nodes - 1)


def node(name: str, gpus: int, *, memory_mib: int = 0, cpus: int = 0, groups: int = 1, **more: object) -> Node:
    of_type = str(more.pop("type", "gpu"))
    each = max(1, gpus // groups)
    made = tuple(Gpu(index=i, type=of_type, memory_mib=memory_mib, link_group=i // each) for i in range(gpus))
    fields: dict[str, object] = {"memory_mib": 65536, **more}
    return Node(name=name, gpus=made, cpus=cpus or 4 * max(1, gpus), **fields)  # type: ignore[arg-type]


def nodes(*sizes: int) -> tuple[Node, ...]:
    return tuple(node(f"n{i + 1}", size) for i, size in enumerate(sizes))


def view(
    job: int,
    n: int = 1,
    *,
    at: Mapping[str, Sequence[int]] | None = None,
    launcher: Launcher = Launcher.PER_GPU,
    spec: Mapping[str, object] | None = None,
    gpus: Mapping[str, object] | None = None,
    **fields: object,
) -> JobView:
    """A job; `at` says which GPUs of which nodes it holds."""
    request = GpuRequest(min=1, max=max(1, n), **(gpus or {}))  # type: ignore[arg-type]
    made = JobSpec(name=f"j{job}", command=("x",), gpus=request, launcher=launcher, **(spec or {}))  # type: ignore[arg-type]
    allocation = None
    if at is not None:
        per = made.cpus * (1 if launcher in (Launcher.SINGLE, Launcher.PER_NODE) else 0)
        parts = tuple(
            Part(node=name, gpus=tuple(g), cpus=per or len(g) * made.cpus, memory_mib=made.memory_mib)
            for name, g in at.items()
        )
        allocation = Allocation(parts=parts, gpu_type="gpu")
    base: dict[str, object] = {
        "state": JobState.RUNNING if at else JobState.QUEUED,
        "submitted_s": float(job),
        "speed": Law(),
        "sizes": (n,),
        "gpu_types": ("gpu",),
        "allocation": allocation,
        "held_n": allocation.gpus if allocation else 0,
        "remaining_1_s": 36000.0,
        "rate_now": 0.0,
        "restart_cost_s": 6.0,
        "last_nodes": allocation.nodes if allocation else (),
    }
    return JobView(id=job, spec=made, **{**base, **fields})  # type: ignore[arg-type]


def sharing(job: int, memory_mib: int, *, on: tuple[str, int] | None = None, **fields: object) -> JobView:
    """A job that takes a piece of a GPU of 16,000 MiB."""
    measured = int(str(fields.pop("measured_mib", memory_mib)))
    made = view(job, 1, gpus={"share": True, "memory_mib": memory_mib}, launcher=Launcher.SINGLE)
    milli = -(-GPU_MILLI * memory_mib // 16000)
    milli_now = int(str(fields.pop("gpu_milli_now", milli)))
    milli = int(str(fields.pop("milli_held", milli)))
    allocation = None
    if on is not None:
        part = Part(node=on[0], gpus=(on[1],), cpus=1)
        allocation = Allocation(parts=(part,), gpu_type="gpu", share=Share(memory_mib=memory_mib, milli=milli))
    return replace(
        made,
        gpu_milli=max(1, milli_now),
        share_memory_mib=measured,
        allocation=allocation,
        held_n=1 if allocation else 0,
        state=JobState.RUNNING if allocation else JobState.QUEUED,
        **fields,  # type: ignore[arg-type]
    )


def snap(cluster: Sequence[Node], jobs: Sequence[JobView], now_s: float = 10_000.0, **options: object) -> Snapshot:
    made = tuple(cluster)
    return Snapshot(
        now_s=now_s,
        jobs=tuple(jobs),
        nodes=made,
        capacity=capacity_of(made),
        options=Options(**options),  # type: ignore[arg-type]
    )


def want(*grants: tuple[JobView, int] | JobView) -> list[Placed]:
    """Jobs with their grants; without a number, what the job holds or its only size."""
    pairs = [g if isinstance(g, tuple) else (g, g.held_n or g.max) for g in grants]
    return [Placed(view=v, grant=Grant(n=n, gpu_type="gpu" if v.gpu_milli else "")) for v, n in pairs]


def rng() -> random.Random:
    return random.Random(7)


def breaches(snapshot: Snapshot, wanted: Sequence[Placed], layout: Layout) -> list[str]:
    """Every law that this layout breaks, in words."""
    found = [*_not_accounted(wanted, layout), *_overfull_nodes(snapshot, layout), *_overfull_gpus(snapshot, layout)]
    for placed in wanted:
        allocation = layout.allocations.get(placed.view.id)
        if allocation is not None and allocation != placed.view.allocation:
            found.extend(_wrong_place(snapshot, placed, allocation))
            found.extend(_spans_realms(snapshot, placed, allocation))
    return found


def _spans_realms(snapshot: Snapshot, placed: Placed, allocation: Allocation) -> list[str]:
    realms = {realm_of(n) for n in snapshot.nodes if n.name in allocation.nodes}
    return [f"job {placed.view.id} spans {sorted(realms)}"] if len(realms) > 1 else []


def _not_accounted(wanted: Sequence[Placed], layout: Layout) -> list[str]:
    ids = {p.view.id for p in wanted}
    missing = ids - layout.allocations.keys() - layout.unplaced.keys()
    both = layout.allocations.keys() & layout.unplaced.keys()
    alien = layout.allocations.keys() - ids
    return [f"{what}: {jobs}" for what, jobs in (("lost", missing), ("twice", both), ("alien", alien)) if jobs]


def _overfull_nodes(snapshot: Snapshot, layout: Layout) -> list[str]:
    used: dict[str, tuple[int, int]] = {}
    for allocation in layout.allocations.values():
        for part in allocation.parts:
            cpus, memory_mib = used.get(part.node, (0, 0))
            used[part.node] = (cpus + part.cpus, memory_mib + part.memory_mib)
    found = []
    for n in snapshot.nodes:
        cpus, memory_mib = used.get(n.name, (0, 0))
        if cpus > cpus_of(n) or memory_mib > n.memory_mib:
            found.append(f"{n.name} has {cpus} CPUs and {memory_mib} MiB in use")
    return found


def _overfull_gpus(snapshot: Snapshot, layout: Layout) -> list[str]:
    gpus = {(n.name, g.index): g for n in snapshot.nodes for g in n.gpus}
    views = {v.id: v for v in snapshot.jobs}
    on: dict[tuple[str, int], list[Share | None]] = {}
    for job, allocation in layout.allocations.items():
        for part in allocation.parts:
            for index in part.gpus:
                gpu = gpus.get((part.node, index))
                stays = allocation == views[job].allocation
                share = share_now(views[job], gpu) if allocation.share and gpu and stays else allocation.share
                on.setdefault((part.node, index), []).append(share)
    found = []
    for where, shares in on.items():
        whole = sum(1 for s in shares if s is None)
        milli = sum(s.milli for s in shares if s)
        memory_mib = sum(s.memory_mib for s in shares if s)
        limit_mib = gpus[where].memory_mib - gpus[where].others_memory_mib if where in gpus else 0
        overload = max(GPU_MILLI, snapshot.options.share_overload_milli)
        if whole > 1 or (whole and milli) or milli > overload or (limit_mib and memory_mib > limit_mib):
            found.append(f"{where} is held by {shares}")
    return found


def _wrong_place(snapshot: Snapshot, placed: Placed, allocation: Allocation) -> list[str]:
    by_name = {n.name: n for n in snapshot.nodes}
    spec, found = placed.view.spec, []
    if placed.view.gpu_milli and not allocation.share and allocation.gpus not in (placed.grant.n, *placed.view.sizes):
        found.append(f"job {placed.view.id} has {allocation.gpus} GPUs, granted {placed.grant.n}")
    if len(allocation.parts) != len(set(allocation.nodes)):
        found.append("a node twice")
    if spec.launcher is Launcher.SINGLE and len(allocation.parts) > 1:
        found.append(f"job {placed.view.id} is one process and spans nodes")
    for part in allocation.parts:
        n = by_name.get(part.node)
        if n is None or n.condition is not NodeCondition.READY:
            found.append(f"job {placed.view.id} is newly put on {part.node}, which takes nothing new")
            continue
        usable = {g.index: g for g in n.usable_gpus()}
        if any(i not in usable or usable[i].type != allocation.gpu_type for i in part.gpus):
            found.append(f"job {placed.view.id} is on GPUs {part.gpus} of {part.node}, not all its to have")
        if list(part.gpus) != sorted(set(part.gpus)):
            found.append("GPUs not sorted")
        if any(n.labels.get(k) != v for k, v in spec.node_labels.items()):
            found.append(f"job {placed.view.id} is on a node without its labels")
        if (spec.nodes and n.name not in spec.nodes) or (spec.image and n.no_containers):
            found.append(f"job {placed.view.id} is on {n.name}, which it may not use")
    return found
