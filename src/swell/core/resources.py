"""Machines, GPUs, shares of GPUs and allocations. Amounts are whole numbers, so that sums are exact."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from swell.core.evolve import made_fast

GPU_MILLI = 1000
"""One whole GPU. A share of a GPU is a whole number of thousandths, so that sums stay exact."""

GpuKey = tuple[str, int]
"""A GPU: its node and its index there."""


class NodeCondition(StrEnum):
    READY = "ready"
    CORDONED = "cordoned"  # keeps its runs, takes no new ones
    DRAINING = "draining"  # its runs are checkpointed and moved away
    QUARANTINED = "quarantined"  # cordoned by Swell itself, with a reason
    LOST = "lost"  # silent for too long


class Contact(StrEnum):
    """Whether a machine answers. Separate from its condition: a cordon survives an outage."""

    HERE = "here"
    AWAY = "away"  # silent: takes no new runs; its runs continue and keep their GPUs
    RETURNING = "returning"  # answers again: old attempts are killed before new runs start
    LOST = "lost"  # its runs have certainly ended, and are recorded as lost


LEASE_S = 600.0
"""Default lease: runs on a machine over a network end by themselves this long after losing the daemon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """How a machine is reached over SSH, as a person declared it."""

    host: str
    user: str = ""  # empty: as ~/.ssh/config says, else the daemon's own
    port: int = 22
    key_file: str = ""  # empty: as ~/.ssh/config says, else the agent's and the usual ones
    config_host: str = ""  # alias in ~/.ssh/config, with its ProxyJump
    host_key: str = ""  # pinned: one line of OpenSSH's public key format; no connection without
    python: str = "python3"
    setup: tuple[str, ...] = ()  # lines of shell before each worker's command
    root: str = ""  # directory on the machine; empty: ~/.swell


def fingerprint(host_key: str) -> str:
    """The fingerprint of a pinned host key, as `ssh` shows it; empty for none."""
    if not host_key:
        return ""
    digest = hashlib.sha256(base64.b64decode(host_key.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


class GpuHealth(StrEnum):
    OK = "ok"
    DIRTY = "dirty"  # its last run has ended but its memory is not free yet
    QUARANTINED = "quarantined"  # allocated to no job until a person has looked


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    index: int
    type: str = "gpu"
    memory_mib: int = 0  # 0: not known (declared slots without a driver)
    link_group: int = 0  # GPUs of one group are joined by a fast link (NVLink)
    health: GpuHealth = GpuHealth.OK
    why: str = ""
    others_memory_mib: int = 0  # measured: used by processes that are not Swell's
    others: bool = False  # a process that is not Swell's uses it, so no run gets it
    uuid: str = ""  # of the device; empty: declared, or the driver does not report it


class Capped(StrEnum):
    GPUS = "gpus"
    PODS = "pods"
    CPUS = "cpus"
    MEMORY = "memory_mib"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """The most that the cluster manager (a ResourceQuota of Kubernetes) allows all of Swell's runs in one namespace
    together."""

    namespace: str
    what: Capped
    most: int
    why: str  # for people: who sets it, and what others use of it
    refused: bool = False  # no run is possible there as configured; `why` says what to do


MEASURED = ("gpus", "cpus", "memory_mib", "no_containers")
"""The fields of a node that are measured on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    gpus: tuple[Gpu, ...] = ()
    cpus: int = 1
    memory_mib: int = 1024
    labels: Mapping[str, str] = field(default_factory=dict)
    rack: str = ""
    address: str = "127.0.0.1"
    executor: str = "local"
    condition: NodeCondition = NodeCondition.READY
    why: str = ""
    lease_s: float = 0.0  # runs end by themselves this long after they lost the daemon; 0: never
    lease_waived: bool = False  # its runs may continue without a daemon, without a time limit
    contact: Contact = Contact.HERE
    contact_s: float = 0.0  # since when
    boot_id: str = ""  # of the machine; empty: it is not watched for contact (the daemon's own)
    ssh: Ssh | None = None  # of nodes whose executor is "ssh"; None in what is measured there
    closed: str = ""  # why the cluster manager (Kubernetes) starts nothing new there; empty: it does
    no_containers: str = ""  # why jobs with an image cannot run there; empty: they can, or it is not known
    realm: str = ""  # machines of one realm reach each other; a run never spans realms
    interface: str = ""  # network interface that has its address; empty: unknown
    failed_starts: tuple[int, ...] = ()  # jobs that failed to start here, one after the other, up to now
    declared: tuple[str, ...] = ()  # which of MEASURED a person declared: measuring does not change them
    caps: tuple[Cap, ...] = ()  # on all nodes of its kind together; reported with one of them

    @property
    def schedulable(self) -> bool:
        answers = self.contact is Contact.HERE and bool(self.boot_id or not self.lease_s)
        return answers and not self.closed and self.condition is NodeCondition.READY

    def usable_gpus(self) -> tuple[Gpu, ...]:
        """GPUs that a new run may get, if no other run holds them."""
        return tuple(g for g in self.gpus if g.health is GpuHealth.OK and not g.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of one GPU: what a shareable job reserves."""

    memory_mib: int
    milli: int  # of its compute, in thousandths


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a run holds on one node. `gpus` are indices of that node's GPUs, sorted."""

    node: str
    gpus: tuple[int, ...] = ()
    cpus: int = 0
    memory_mib: int = 0


@made_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a run holds, in rank order of its nodes. `share` is set if it holds only a share of its one GPU."""

    parts: tuple[Part, ...]
    gpu_type: str = ""
    share: Share | None = None

    @property
    def gpus(self) -> int:
        parts = self.parts
        return len(parts[0].gpus) if len(parts) == 1 else sum(len(part.gpus) for part in parts)

    @property
    def nodes(self) -> tuple[str, ...]:
        parts = self.parts
        return (parts[0].node,) if len(parts) == 1 else tuple(part.node for part in parts)

    @property
    def gpu_keys(self) -> list[GpuKey]:
        return [(part.node, gpu) for part in self.parts for gpu in part.gpus]

    @property
    def n(self) -> int:
        """The amount as policies count it: whole GPUs, or 1 for a share of one and for a run without GPUs."""
        return 1 if self.share is not None else self.gpus or 1

    @property
    def gpu_milli(self) -> int:
        return self.share.milli if self.share else GPU_MILLI * self.gpus


def gpus_per_node(nodes: Iterable[Node]) -> dict[str, int]:
    """The largest number of GPUs of each type on one node."""
    most: dict[str, int] = {}
    for node in nodes:
        counts: dict[str, int] = {}
        for gpu in node.gpus:
            counts[gpu.type] = counts.get(gpu.type, 0) + 1
        for gpu_type, count in counts.items():
            most[gpu_type] = max(most.get(gpu_type, 0), count)
    return dict(sorted(most.items()))
