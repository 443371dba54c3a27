"""Whether a job can ever run here. Checked at submit, so that an infeasible job is refused and not left pending.

Called by the daemon's engine and the simulator. The rules are those of the placers (`core.capacity`), applied to the
known nodes as if they were idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from swell.core.capacity import (
    Need,
    accepts_type,
    cpus_of,
    fits_beside,
    has_labels,
    has_memory,
    most_together,
    need_of_spec,
    realm_of,
)
from swell.core.caps import caps_of, under
from swell.core.containers import check_container
from swell.core.errors import Infeasible
from swell.core.job import JobSpec, Preemptible
from swell.core.pods import check_pods, no_node_for, runs_pods
from swell.core.resources import Gpu, Node, NodeCondition, Share


def check_feasible(spec: JobSpec, nodes: Iterable[Node]) -> None:
    """Raise Infeasible if no set of the known nodes, all idle and ready, could hold the job at its minimum.

    Cordoned and draining nodes count, because they may come back. While no node is known, no job is refused; it waits
    for the first node."""
    check_container(spec)
    check_pods(spec)
    nodes = tuple(nodes)
    for cap in caps_of(nodes):
        if cap.refused and under(spec, cap):
            raise Infeasible(cap.why)
    known = [_idle(node) for node in nodes if node.condition is not NodeCondition.LOST]
    if not known:
        return
    of_kind = [node for node in known if runs_pods(node) is (spec.kubernetes is not None)]
    if not of_kind:
        raise Infeasible(no_node_for(spec))
    fitting = _accepted(spec, of_kind)
    _check_cpu_and_memory(spec, fitting)
    if not spec.cpu_only:
        _check_gpus(spec, fitting)


def _accepted(spec: JobSpec, nodes: Sequence[Node]) -> list[Node]:
    """Nodes whose names, labels and container runtime the job accepts. Raises Infeasible if there are none."""
    named = [node for node in nodes if not spec.nodes or node.name in spec.nodes]
    if not named:
        there = ", ".join(sorted(node.name for node in nodes))
        raise Infeasible(f"there is no node called {' or '.join(spec.nodes)}; there are: {there}")
    labelled = [node for node in named if has_labels(node, spec.node_labels.items())]
    if not labelled:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(spec.node_labels.items()))
        of_them = " of those it names" if spec.nodes else ""
        raise Infeasible(f"no node{of_them} has the labels {wanted}; `swell nodes` shows the labels there are")
    able = [node for node in labelled if not (spec.image and node.no_containers)]
    if not able:
        why = "; ".join(f"{node.name}: {node.no_containers}" for node in labelled[:5])
        raise Infeasible(f"it has an image, and no node that it may use runs containers ({why}); leave out image")
    return able


def at_once(spec: JobSpec, node: Node) -> int:
    """How many such jobs of minimum size the node could run at the same time if it were idle."""
    need = need_of_spec(spec, max(1, spec.gpus.min), "")
    if not node.schedulable or not need.accepts(node):
        return 0
    processes = need.processes(spec.gpus.min, need.servers)
    bounds = [free // (processes * each) for free, each in _cpu_and_memory(need, node) if each]
    if not spec.cpu_only:
        gpus = gpus_for(spec, node)
        shared = sum(_beside(need, gpu) for gpu in gpus)
        bounds.append(shared if need.shared else len(gpus) // need.gpus)
    return min(bounds, default=cpus_of(node))


def _cpu_and_memory(need: Need, node: Node) -> tuple[tuple[int, int], tuple[int, int]]:
    return (cpus_of(node), need.cpus), (node.memory_mib, need.memory_mib)


def gpus_for(spec: JobSpec, node: Node) -> list[Gpu]:
    """GPUs of the node that the job may have."""
    usable = (gpu for gpu in node.usable_gpus() if accepts_type(spec.gpus, gpu.type))
    return [gpu for gpu in usable if has_memory(gpu, spec.gpus.memory_mib)]


def _beside(need: Need, gpu: Gpu) -> int:
    """How many shares of this size fit on one GPU; a share of unknown size counts as the whole GPU."""
    share, used, count = need.share_of(gpu), Share(memory_mib=0, milli=0), 0
    while fits_beside(share, used, gpu, 0):
        used, count = Share(memory_mib=used.memory_mib + share.memory_mib, milli=used.milli + share.milli), count + 1
    return count or 1


def elasticity_note(spec: JobSpec) -> str:
    """A note at submit for a job that has several sizes but cannot be resized; empty if it can."""
    if spec.gpus.min == spec.gpus.max or spec.may_be_stopped or spec.scales_in_place:
        return ""
    keeps = f"it keeps {_gpus(spec.gpus.first_size)} until it ends"
    if spec.preemptible is Preemptible.NEVER:
        return f"{keeps}, because {spec.why_not_stopped}"
    return (
        f"{keeps} unless it calls the swell library: nobody may stop it to resize it, because {spec.why_not_stopped}. "
        f"For {spec.gpus.min} to {spec.gpus.max} from the start set uses_library or checkpoint_dir, or preemptible: "
        "restart if it may begin again from nothing"
    )


def deadline_note(spec: JobSpec, now_s: float) -> str:
    """A note at submit for a job whose deadline is past; empty if it has none or has time left."""
    return "its deadline is past: nothing can be done to meet it" if 0 < spec.deadline_s <= now_s else ""


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _idle(node: Node) -> Node:
    """The node without the GPU memory that others use now, because it may be free later."""
    if not any(gpu.others_memory_mib for gpu in node.gpus):
        return node
    return replace(node, gpus=tuple(replace(gpu, others_memory_mib=0) for gpu in node.gpus))


def _check_cpu_and_memory(spec: JobSpec, nodes: Sequence[Node]) -> None:
    cpus = max(map(cpus_of, nodes))
    if spec.cpus > cpus:
        raise Infeasible(f"one worker needs {spec.cpus} CPUs, the largest node has {cpus}; ask for at most {cpus}")
    memory_mib = max(node.memory_mib for node in nodes)
    if spec.memory_mib > memory_mib:
        raise Infeasible(
            f"one worker needs {spec.memory_mib} MiB of memory, the largest node has {memory_mib} MiB; ask for less"
        )
    if spec.cpu_only or spec.gpus.share:
        _check_processes(spec, nodes, need_of_spec(spec, 1, ""), "its processes")


def _check_processes(spec: JobSpec, nodes: Sequence[Node], need: Need, what: str) -> None:
    """Raise Infeasible if no node can hold all processes of a job that runs on one node."""
    if not any(need.hosted_by(cpus_of(node), node.memory_mib, need.gpus) for node in nodes):
        count = need.processes(need.gpus, need.servers)
        raise Infeasible(
            f"{what} need {count * spec.cpus} CPUs and {count * spec.memory_mib} MiB of memory on one node, and no "
            "node has both; lower cpus or memory"
        )


def _check_gpus(spec: JobSpec, nodes: Sequence[Node]) -> None:
    request, least = spec.gpus, spec.gpus.sizes()[0]
    accepted = [[gpu for gpu in node.gpus if accepts_type(request, gpu.type)] for node in nodes]
    if not any(accepted):
        raise Infeasible(_no_gpu_message(nodes))
    roomy = [[gpu for gpu in gpus if has_memory(gpu, request.memory_mib)] for gpus in accepted]
    if not any(roomy):
        largest = max(gpu.memory_mib for gpus in accepted for gpu in gpus)
        raise Infeasible(
            f"it needs {request.memory_mib} MiB of memory on a GPU, the largest GPU it may use has {largest}; "
            "lower gpus.memory, or allow other GPU types"
        )
    if request.share:
        holders = [node for node, gpus in zip(nodes, roomy, strict=True) if gpus]
        _check_processes(spec, holders, need_of_spec(spec, 1, ""), "its processes")
    else:
        _check_whole_gpus(spec, least, nodes, roomy)


def _check_whole_gpus(spec: JobSpec, least: int, nodes: Sequence[Node], roomy: Sequence[Sequence[Gpu]]) -> None:
    types = sorted({gpu.type for gpus in roomy for gpu in gpus})
    on_nodes = {t: [sum(gpu.type == t for gpu in gpus) for gpus in roomy] for t in types}
    if need_of_spec(spec, least, "").one_node:
        largest = max(max(counts) for counts in on_nodes.values())
        if least > largest:
            raise Infeasible(
                f"it needs {least} GPUs in one process and the largest node has {largest}; lower gpus.min to {largest} "
                "or less, or start a process per node or per GPU (launcher: per-node, per-gpu, torchrun)"
            )
    most = max(most_together(nodes, counts, one_node=False) for counts in on_nodes.values())
    if least > most:
        apart = "" if len({realm_of(node) for node in nodes}) == 1 else " on machines that reach each other"
        raise Infeasible(
            f"it needs at least {least} GPUs of one type{apart} and there are {most}; "
            f"lower gpus.min to {most} or less, or add nodes (`swell node add`)"
        )
    hosted = max(_hosted(need_of_spec(spec, least, t), nodes, counts) for t, counts in on_nodes.items())
    if least > hosted:
        raise Infeasible(
            f"it needs at least {least} GPUs, and the nodes have CPUs and memory for its processes on {hosted}; "
            "lower cpus or memory (both are per process), or gpus.min"
        )


def _hosted(need: Need, nodes: Sequence[Node], counts: Sequence[int]) -> int:
    """How many whole GPUs the job could have on these nodes, given also their CPUs and memory."""
    each = [need.most(count, cpus_of(node), node.memory_mib) for node, count in zip(nodes, counts, strict=True)]
    return most_together(nodes, each, one_node=need.one_node)


def _no_gpu_message(nodes: Sequence[Node]) -> str:
    there = sorted({gpu.type for node in nodes for gpu in node.gpus})
    if not there:
        return (
            "it needs a GPU and no node has one; ask for `gpus: 0`, or let slots stand in for GPUs with "
            "`swell up --gpus N`, now or at any time"
        )
    return f"none of the GPU types it accepts is here; there are: {', '.join(there)}"
