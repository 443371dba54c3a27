"""What one granted job asks of the nodes it is put on: GPUs, memory of each, CPUs and memory for its processes."""

from __future__ import annotations

from dataclasses import dataclass

from swell.core.evolve import made_fast
from swell.core.ids import JobId
from swell.core.job import JobSpec, Launcher
from swell.core.resources import Gpu, Node, Part, Share
from swell.placement.sharing import share_on, utilisation_milli
from swell.ports import Placed

ONE_PROCESS_A_NODE = frozenset({Launcher.SINGLE, Launcher.PER_NODE})
"""All other launchers run one process a GPU."""


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """`gpus` is 0 for a job that needs a piece of a GPU (`shared`) or none at all."""

    job: JobId
    gpus: int
    gpu_type: str = ""
    gpu_memory_mib: int = 0  # each GPU must have so much
    shared: bool = False
    share_memory_mib: int = 0
    share_milli: int = 0  # utilisation said by its user; 0: by memory alone
    cpus: int = 0  # per process
    memory_mib: int = 0  # per process
    per_gpu: bool = False  # one process a GPU, else one a node
    servers: int = 0  # processes beside those, going round its nodes
    one_node: bool = False  # a single process cannot span nodes
    labels: tuple[tuple[str, str], ...] = ()

    def processes(self, gpus: int, servers: int) -> int:
        return (gpus if self.per_gpu and gpus else 1) + servers

    def part(self, node: str, gpus: tuple[int, ...], rank: int = 0, nodes: int = 1) -> Part:
        """What it holds on the `rank`-th of its nodes."""
        servers = max(0, self.servers - rank + nodes - 1) // nodes
        processes = self.processes(len(gpus), servers)
        return Part(node=node, gpus=gpus, cpus=processes * self.cpus, memory_mib=processes * self.memory_mib)

    def share_of(self, gpu: Gpu) -> Share:
        return share_on(gpu, self.share_memory_mib, self.share_milli)

    def accepts(self, node: Node) -> bool:
        return all(node.labels.get(key) == value for key, value in self.labels)

    def accepts_gpu(self, gpu: Gpu) -> bool:
        """Memory that is not known is taken on trust."""
        return not gpu.memory_mib or gpu.memory_mib - gpu.others_memory_mib >= self.gpu_memory_mib


def need_of(placed: Placed, n: int | None = None) -> Need:
    """What this job needs at its granted size, or at another one."""
    view, spec = placed.view, placed.view.spec
    shared = spec.gpus.share and view.gpu_milli > 0
    whole = view.gpu_milli > 0 and not shared
    return Need(
        job=view.id,
        gpus=(placed.grant.n if n is None else n) if whole else 0,
        gpu_type=placed.grant.gpu_type,
        gpu_memory_mib=spec.gpus.memory_mib if whole else 0,
        shared=shared,
        share_memory_mib=view.share_memory_mib,
        share_milli=utilisation_milli(view) if shared else 0,
        cpus=spec.cpus,
        memory_mib=spec.memory_mib,
        per_gpu=whole and spec.launcher not in ONE_PROCESS_A_NODE,
        servers=_servers(spec),
        one_node=not whole or spec.launcher is Launcher.SINGLE,
        labels=tuple(sorted(spec.node_labels.items())),
    )


def _servers(spec: JobSpec) -> int:
    if spec.launcher is not Launcher.PS:
        return 0
    return spec.roles.servers if spec.roles else 1


def cpus_of(node: Node) -> int:
    """CPUs to account. A machine that declares more GPUs than CPUs still drives each GPU with one: the default of one
    CPU a process must not leave a GPU idle."""
    return max(node.cpus, len(node.gpus))
