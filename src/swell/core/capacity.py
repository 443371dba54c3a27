"""Which job fits on which node: the rules about GPU types, labels, memory, CPUs, shares and processes, each once.

Admission, the policies' stock, the placers, reconcile, explain and relax all call it. Pure functions of values: the
ledgers that count (`policy.base.Purse`, `placement.room`, `plan.reconcile.Held`) use these rules and have none of their
own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from swell.core.evolve import made_fast
from swell.core.ids import JobId
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.pods import runs_pods
from swell.core.resources import GPU_MILLI, Gpu, Node, Part, Share

ONE_PROCESS_PER_NODE = frozenset({Launcher.SINGLE, Launcher.PER_NODE})
"""All other launchers run one process per GPU."""
WHOLE_GPU = Share(memory_mib=0, milli=GPU_MILLI)
"""What a run without a share holds of each of its GPUs."""


def accepts_type(request: GpuRequest, gpu_type: str) -> bool:
    """Whether the request allows this type: it is in `types` (empty: any) and not in `exclude`."""
    return (not request.types or gpu_type in request.types) and gpu_type not in request.exclude


def has_labels(node: Node, labels: Iterable[tuple[str, str]]) -> bool:
    return all(node.labels.get(key) == value for key, value in labels)


def kind_of(node: Node, named: Collection[str]) -> tuple[object, ...]:
    """A job that may use one node of a kind may use any other of it, apart from GPUs and free room. `named`: nodes that
    some job names; each of them is a kind of its own."""
    own = node.name if node.name in named else ""
    return own, realm_of(node), node.rack, tuple(sorted(node.labels.items())), bool(node.no_containers)


Realm = tuple[str, str]


def realm_of(node: Node) -> Realm:
    """Machines that can reach each other: of one kind, and of one realm as a person declared it. A run never spans
    two."""
    return node.executor, node.realm


def most_together(nodes: Iterable[Node], counts: Iterable[int], *, one_node: bool) -> int:
    """The most that one run can have of the given number on each of these nodes."""
    found: dict[Realm | str, int] = {}
    for node, count in zip(nodes, counts, strict=True):
        together = node.name if one_node else realm_of(node)
        found[together] = found.get(together, 0) + count
    return max(found.values(), default=0)


def free_mib(gpu: Gpu) -> int:
    """GPU memory for Swell's runs: all of it except what processes of others were measured to use."""
    return gpu.memory_mib - gpu.others_memory_mib


def has_memory(gpu: Gpu, memory_mib: int) -> bool:
    """Whether the GPU has this much memory for runs. An unknown amount (slots without a driver) counts as enough."""
    return not gpu.memory_mib or free_mib(gpu) >= memory_mib


def cpus_of(node: Node) -> int:
    """CPUs to account: at least one per GPU, so that on a node with more GPUs than CPUs the default of one CPU per
    process leaves no GPU idle."""
    return max(node.cpus, len(node.gpus))


def share_milli(memory_mib: int, utilisation_milli: int, gpu_memory_mib: int) -> int:
    """The part of a GPU's compute that a job with a share takes: the larger of its specified utilisation and its part
    of the GPU's memory. If both are unknown, it gets the GPU alone."""
    by_memory = -(-GPU_MILLI * memory_mib // gpu_memory_mib) if gpu_memory_mib else 0
    return min(GPU_MILLI, max(utilisation_milli, by_memory) or GPU_MILLI)


def fits_beside(share: Share, used: Share, gpu: Gpu | None, overload_milli: int) -> bool:
    """Whether the share fits on a GPU on which other shares use `used` in total. A whole GPU is never shared. `gpu` is
    None if the GPU is no longer known: then its memory counts as enough."""
    if share.milli >= GPU_MILLI or used.milli + share.milli > max(GPU_MILLI, overload_milli):
        return False
    return gpu is None or has_memory(gpu, used.memory_mib + share.memory_mib)


def one_process_per_gpu(spec: JobSpec) -> bool:
    """Whether the job runs one process per GPU: only with whole GPUs, and by its launcher."""
    return not spec.gpus.share and not spec.cpu_only and spec.launcher not in ONE_PROCESS_PER_NODE


def servers_of(spec: JobSpec) -> int:
    """Parameter servers beside the workers; one where the job file has no `roles`."""
    if spec.launcher is not Launcher.PS:
        return 0
    return spec.roles.servers if spec.roles else 1


def processes_of(spec: JobSpec, n: int) -> int:
    """Processes of a run with n GPUs on one node, servers included. A `per-node` run has one more per further node."""
    return (n if one_process_per_gpu(spec) and n else 1) + servers_of(spec)


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one job needs of its nodes. `gpus` is 0 for a job that needs a share of a GPU (`shared`) or none. Made by
    `need_of_spec` (from the spec alone) and `placement.need` (for a granted job)."""

    job: JobId
    gpus: int
    gpu_type: str = ""
    gpu_memory_mib: int = 0  # needed on each GPU
    shared: bool = False
    share_memory_mib: int = 0
    share_milli: int = 0  # utilisation specified by its user; 0: by memory alone
    cpus: int = 0  # per process
    memory_mib: int = 0  # per process
    per_gpu: bool = False  # one process per GPU, else one per node
    servers: int = 0  # further processes, distributed round-robin over its nodes
    one_node: bool = False  # a single process cannot span nodes
    labels: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()  # names of the only ones; empty: any
    image: bool = False  # it runs in a container
    pods: bool = False  # it runs on nodes of a Kubernetes cluster, and nowhere else
    only_on: tuple[str, ...] = ()  # the machines that have its files; empty: any

    def processes(self, gpus: int, servers: int) -> int:
        return (gpus if self.per_gpu and gpus else 1) + servers

    def part(self, node: str, gpus: tuple[int, ...], rank: int = 0, nodes: int = 1) -> Part:
        """What it holds on the `rank`-th of its nodes."""
        servers = max(0, self.servers - rank + nodes - 1) // nodes
        processes = self.processes(len(gpus), servers)
        return Part(node=node, gpus=gpus, cpus=processes * self.cpus, memory_mib=processes * self.memory_mib)

    def share_of(self, gpu: Gpu) -> Share:
        milli = share_milli(self.share_memory_mib, self.share_milli, gpu.memory_mib)
        return Share(memory_mib=self.share_memory_mib, milli=milli)

    def accepts(self, node: Node) -> bool:
        if (self.nodes and node.name not in self.nodes) or (self.image and node.no_containers):
            return False
        if self.only_on and node.name not in self.only_on:
            return False
        return runs_pods(node) is self.pods and has_labels(node, self.labels)

    def accepts_gpu(self, gpu: Gpu) -> bool:
        return has_memory(gpu, self.gpu_memory_mib)

    def hosted_by(self, cpus: int, memory_mib: int, gpus: int) -> bool:
        """Whether a node with this much free runs the job's processes for this number of GPUs, servers included."""
        processes = self.processes(gpus, self.servers)
        return processes * self.cpus <= cpus and processes * self.memory_mib <= memory_mib

    def most(self, gpus: int, cpus: int, memory_mib: int) -> int:
        """The largest number of the free whole GPUs that a node with these CPUs and memory free can give it."""
        while gpus and not self.hosted_by(cpus, memory_mib, gpus):
            gpus = gpus - 1 if self.per_gpu else 0
        return gpus


def need_of_spec(spec: JobSpec, n: int, gpu_type: str, *, job: JobId = 0) -> Need:
    """What the job needs with n GPUs (1 for a share of a GPU, or for a job without GPUs), by its spec alone."""
    request = spec.gpus
    whole = not request.share and not spec.cpu_only
    return Need(
        job=job,
        gpus=n if whole else 0,
        gpu_type=gpu_type,
        gpu_memory_mib=request.memory_mib if whole else 0,
        shared=request.share,
        share_memory_mib=request.memory_mib if request.share else 0,
        share_milli=request.utilisation_milli if request.share else 0,
        cpus=spec.cpus,
        memory_mib=spec.memory_mib,
        per_gpu=one_process_per_gpu(spec),
        servers=servers_of(spec),
        one_node=not whole or spec.launcher is Launcher.SINGLE,
        labels=tuple(sorted(spec.node_labels.items())),
        nodes=spec.nodes,
        image=bool(spec.image),
        pods=spec.kubernetes is not None,
    )
