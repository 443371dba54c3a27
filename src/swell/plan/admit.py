"""Can this job ever run here? Asked once, at submit: `Infeasible` is said at once, not after a night in the queue."""

from __future__ import annotations

from collections.abc import Iterable

from swell.core.errors import Infeasible
from swell.core.job import JobSpec, Launcher
from swell.core.resources import Gpu, Node, NodeCondition


def check_feasible(spec: JobSpec, nodes: Iterable[Node]) -> None:
    """Raise Infeasible if no set of the known nodes, all idle and ready, could hold the job at its minimum.

    Cordoned and draining nodes count: they may come back. With no node known at all nothing can be said, and the job
    waits for the first one."""
    known = [node for node in nodes if node.condition is not NodeCondition.LOST]
    if not known:
        return
    fitting = [node for node in known if _labels_fit(spec, node)]
    if not fitting:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(spec.node_labels.items()))
        raise Infeasible(f"no node has the labels {wanted}; `swell nodes` shows the labels there are")
    _check_cpu_and_memory(spec, fitting)
    if not spec.cpu_only:
        _check_gpus(spec, fitting)


def _labels_fit(spec: JobSpec, node: Node) -> bool:
    return all(node.labels.get(key) == value for key, value in spec.node_labels.items())


def _check_cpu_and_memory(spec: JobSpec, nodes: list[Node]) -> None:
    cpus = max(node.cpus for node in nodes)
    if spec.cpus > cpus:
        raise Infeasible(f"one worker needs {spec.cpus} CPUs, the largest node has {cpus}; ask for at most {cpus}")
    memory_mib = max(node.memory_mib for node in nodes)
    if spec.memory_mib > memory_mib:
        raise Infeasible(
            f"one worker needs {spec.memory_mib} MiB of memory, the largest node has {memory_mib}; ask for less"
        )


def _check_gpus(spec: JobSpec, nodes: list[Node]) -> None:
    request = spec.gpus
    accepted = [[gpu for gpu in node.gpus if _type_fits(spec, gpu)] for node in nodes]
    by_type: dict[str, int] = {}
    for gpu in (gpu for gpus in accepted for gpu in gpus):
        by_type[gpu.type] = by_type.get(gpu.type, 0) + 1
    if not by_type:
        raise Infeasible(_no_gpu_message(nodes))
    enough_memory = [
        gpu for gpus in accepted for gpu in gpus if gpu.memory_mib == 0 or gpu.memory_mib >= request.memory_mib
    ]
    if not enough_memory:
        largest = max(gpu.memory_mib for gpus in accepted for gpu in gpus)
        raise Infeasible(
            f"it needs {request.memory_mib} MiB of memory on a GPU, the largest GPU it may use has {largest}; "
            "lower gpus.memory, or allow other GPU types"
        )
    _check_one_node(spec, accepted)
    most = max(by_type.values())
    if not request.share and request.sizes()[0] > most:
        raise Infeasible(
            f"it needs at least {request.sizes()[0]} GPUs of one type and there are {most}; "
            f"lower gpus.min to {most} or less, or add nodes (`swell node add`)"
        )


def _check_one_node(spec: JobSpec, accepted: list[list[Gpu]]) -> None:
    """One process uses the GPUs of one node."""
    largest = max(len(gpus) for gpus in accepted)
    if spec.launcher is Launcher.SINGLE and not spec.gpus.share and spec.gpus.sizes()[0] > largest:
        raise Infeasible(
            f"it needs {spec.gpus.sizes()[0]} GPUs in one process and the largest node has {largest}; lower "
            f"gpus.min to {largest} or less, or start a process a node or a GPU (launcher: per-node, per-gpu, torchrun)"
        )


def _type_fits(spec: JobSpec, gpu: Gpu) -> bool:
    request = spec.gpus
    return (not request.types or gpu.type in request.types) and gpu.type not in request.exclude


def _no_gpu_message(nodes: list[Node]) -> str:
    there = sorted({gpu.type for node in nodes for gpu in node.gpus})
    if not there:
        return (
            "it needs a GPU and no node has one; ask for `gpus: 0`, or declare slots with `swell up --gpus N` "
            "to try Swell without an NVIDIA driver"
        )
    return f"none of the GPU types it accepts is here; there are: {', '.join(there)}"
