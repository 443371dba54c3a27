"""How each launcher starts a run: processes, their nodes, their argv. Pure; `request` adds the environment.

`single`    one process on the run's first node, with all its GPUs there
`per-node`  one process per node, with all GPUs of that node
`per-gpu`   one process per GPU (one process, if it has none)
`torchrun`  one torchrun agent per node, which starts one process per GPU
`horovod`   one horovodrun on the first node; its host discovery script is what a resize in place rewrites
`mpi`       one mpirun on the first node
`ps`        parameter servers on CPU, and one worker per GPU

torchrun, horovodrun and mpirun replace a child's exit code by their own; they are started through `swell.sdk.carry`,
which restores the exit code of a stop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from swell.core.capacity import servers_of
from swell.core.job import JobSpec, Launcher, Roles
from swell.core.resources import Allocation, Node, Part

LOOPBACK = "127.0.0.1"
ITSELF = "localhost"
_NOTE = "# gpus "  # see `sdk.given`
CARRIED = frozenset({Launcher.TORCHRUN, Launcher.HOROVOD, Launcher.MPI})
"""Launchers whose processes are children of a framework's own launcher."""

HOST_GPUS = "SWELL_HOST_GPUS"
"""The run's GPUs on each of its hosts, for processes that a framework's launcher starts there (`sdk.given`)."""

MPI_FORWARDS = (
    *(
        "PYTHONPATH",
        "MASTER_ADDR",
        "MASTER_PORT",
        "BATCH_SIZE",
        "EPOCHS_TO_BE_DONE",
        "TRAINING_SET_SIZE",
        "EPOCHS_DONE",
    ),
    *("SWELL_URL", "SWELL_RUN", "SWELL_TOKEN", "SWELL_CHECKPOINT_DIR", "SWELL_EPOCHS", "SWELL_EPOCHS_DONE"),
    *("SWELL_LAUNCHER", "SWELL_GPUS", "SWELL_NODES", "SWELL_GPU_TYPE", "SWELL_LEFT_MARK", "SWELL_ACTIVE_FILE"),
    *("SWELL_UNIT", "SWELL_UNITS", "SWELL_UNITS_DONE", "SWELL_LOCAL_BATCH", "SWELL_ACCUMULATION"),
    HOST_GPUS,
)
"""Variables that mpirun passes to processes on other hosts; only names, so that no value is on a command line."""

_PYTHON = re.compile(r"(.*/)?(python|pypy)[0-9.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process to start. `index` counts within its role; `local` among those of its role on the same node."""

    argv: tuple[str, ...]
    part: Part
    node_rank: int
    index: int = 0
    local: int = 0
    gpus: tuple[int, ...] = ()
    role: str = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The place of a run: its allocation, and the addresses at which its processes reach each other."""

    allocation: Allocation
    addresses: tuple[str, ...]  # in order of the parts
    port: int
    discovery_path: str
    interfaces: tuple[str, ...] = ()  # with these addresses, in the same order; empty names: unknown

    @property
    def master(self) -> str:
        return self.addresses[0]


def site_of(allocation: Allocation, nodes: Mapping[str, Node], port: int, discovery_path: str) -> Site:
    """The site of an allocation. On a single node it uses the loopback, which works whatever the node's name."""
    addresses: tuple[str, ...]
    interfaces: tuple[str, ...]
    if len(allocation.parts) == 1:
        addresses, interfaces = (LOOPBACK,), ("",)
    else:
        addresses = tuple(nodes[part.node].address for part in allocation.parts)
        interfaces = tuple(nodes[part.node].interface for part in allocation.parts)
    return Site(
        allocation=allocation,
        addresses=addresses,
        port=port,
        discovery_path=discovery_path,
        interfaces=interfaces,
    )


def processes(spec: JobSpec, site: Site) -> tuple[Process, ...]:
    return tuple(_BUILDERS[spec.launcher](spec, site))


def _single(spec: JobSpec, site: Site) -> Sequence[Process]:
    part = site.allocation.parts[0]
    return [Process(argv=spec.command, part=part, node_rank=0, gpus=part.gpus)]


def _per_node(spec: JobSpec, site: Site) -> Sequence[Process]:
    return [
        Process(argv=spec.command, part=part, node_rank=rank, index=rank, gpus=part.gpus)
        for rank, part in enumerate(site.allocation.parts)
    ]


def _per_gpu(spec: JobSpec, site: Site) -> Sequence[Process]:
    slots = [
        (node_rank, part, local, gpus)
        for node_rank, part in enumerate(site.allocation.parts)
        for local, gpus in enumerate([(gpu,) for gpu in part.gpus] or [()])
    ]
    return [
        Process(argv=spec.command, part=part, node_rank=node_rank, index=index, local=local, gpus=gpus)
        for index, (node_rank, part, local, gpus) in enumerate(slots)
    ]


def _parameter_servers(spec: JobSpec, site: Site) -> Sequence[Process]:
    """Workers first, so that rank 0 is a worker; servers are distributed round-robin over the run's nodes."""
    roles = spec.roles or Roles()
    command = roles.server_command or spec.command
    parts = site.allocation.parts
    servers = [
        Process(
            argv=command,
            part=parts[index % len(parts)],
            node_rank=index % len(parts),
            index=index,
            local=index // len(parts),
            role="server",
        )
        for index in range(servers_of(spec))
    ]
    return [*_per_gpu(spec, site), *servers]


def _torchrun(spec: JobSpec, site: Site) -> Sequence[Process]:
    """Static rendezvous: a resize stops the run and starts another, so torchrun's own elasticity is not used."""
    parts = site.allocation.parts
    return [
        Process(argv=_torchrun_argv(spec, site, rank, part), part=part, node_rank=rank, index=rank, gpus=part.gpus)
        for rank, part in enumerate(parts)
    ]


def _torchrun_argv(spec: JobSpec, site: Site, rank: int, part: Part) -> tuple[str, ...]:
    python, script = split_python(spec.command)
    return (
        *carried(python),
        python,
        "-m",
        "torch.distributed.run",
        f"--nnodes={len(site.allocation.parts)}",
        f"--node-rank={rank}",
        f"--nproc-per-node={max(1, len(part.gpus))}",
        f"--master-addr={site.master}",
        f"--master-port={site.port}",
        "--max-restarts=0",
        *script,
    )


def _horovod(spec: JobSpec, site: Site) -> Sequence[Process]:
    how = ("--network-interfaces", "lo") if len(site.addresses) == 1 else ()
    python, _ = split_python(spec.command)
    command = (python, "-m", "swell.sdk.given", site.discovery_path, *spec.command)
    argv = horovod_argv(replace(spec, command=command), site.allocation.gpus, site.discovery_path, how)
    part = site.allocation.parts[0]
    return [Process(argv=argv, part=part, node_rank=0, gpus=part.gpus)]


def horovod_argv(spec: JobSpec, gpus: int, discovery_path: str, how: Sequence[str] = ()) -> tuple[str, ...]:
    """`how`: further options of horovodrun."""
    python, _ = split_python(spec.command)
    return (
        *carried(python),
        "horovodrun",
        "--gloo",
        "-np",
        str(max(1, gpus)),
        "--min-np",
        str(max(1, spec.gpus.min)),
        "--max-np",
        str(max(1, spec.gpus.max)),
        "--host-discovery-script",
        discovery_path,
        *how,
        *spec.command,
    )


def _mpi(spec: JobSpec, site: Site) -> Sequence[Process]:
    hosts = _slots(site)
    part = site.allocation.parts[0]
    return [Process(argv=mpi_argv(spec, hosts, elsewhere=len(hosts) > 1), part=part, node_rank=0, gpus=part.gpus)]


def mpi_argv(spec: JobSpec, hosts: Sequence[tuple[str, int]], *, elsewhere: bool) -> tuple[str, ...]:
    """`hosts`: addresses with their slots. `elsewhere`: some are not the host of mpirun itself."""
    python, _ = split_python(spec.command)
    named = ",".join(f"{address}:{slots}" for address, slots in hosts)
    forwarded = [word for name in MPI_FORWARDS for word in ("-x", name)] if elsewhere else []
    mpirun = ("mpirun", "-np", str(sum(slots for _, slots in hosts)), "-H", named, *forwarded)
    return (*carried(python), *mpirun, python, "-m", "swell.sdk.ranked", *spec.command)


_BUILDERS: Mapping[Launcher, Callable[[JobSpec, Site], Sequence[Process]]] = {
    Launcher.SINGLE: _single,
    Launcher.PER_NODE: _per_node,
    Launcher.PER_GPU: _per_gpu,
    Launcher.TORCHRUN: _torchrun,
    Launcher.HOROVOD: _horovod,
    Launcher.MPI: _mpi,
    Launcher.PS: _parameter_servers,
}


def carried(python: str) -> tuple[str, ...]:
    return (python, "-m", "swell.sdk.carry")


def split_python(command: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The interpreter of a command, and what torchrun starts: a script, or a program (`--no-python`)."""
    if len(command) > 1 and _PYTHON.fullmatch(command[0]):
        rest = tuple(command[1:])
        if rest[0] == "-m":
            return command[0], ("--module", *rest[1:])
        if not rest[0].startswith("-"):
            return command[0], rest
    return _interpreter(command), ("--no-python", *command)


def _interpreter(command: Sequence[str]) -> str:
    """The Python that has the framework: the one that the command uses, also within a shell line."""
    words = command[2].split() if tuple(command[:2]) == ("/bin/sh", "-c") and len(command) > 2 else command
    return next((word for word in words if _PYTHON.fullmatch(word)), "python3")


def discovery_script(site: Site) -> str:
    """Host discovery for horovodrun: an executable that prints the run's present hosts and slots, and notes its GPUs.

    The executor writes it atomically to `discovery` in the run's directory, again at each resize in place."""
    return _script(host_gpus(site), [f"{address}:{slots}" for address, slots in _slots(site)])


def _script(noted: str, hosts: Sequence[str]) -> str:
    return "\n".join(["#!/bin/sh", f"{_NOTE}{noted}", *(f"echo {host}" for host in hosts), ""])


def host_gpus(site: Site) -> str:
    """The GPUs of each host in order of its slots: the worker with local rank i has the i-th."""
    pairs = zip(_slots(site), site.allocation.parts, strict=True)
    return " ".join(f"{address}={','.join(map(str, part.gpus))}" for (address, _), part in pairs)


def following(before: str, after: str, *, devices: bool) -> str:
    """The discovery script for a resize in place; empty: the run cannot be resized in place. Swell cannot choose which
    worker leaves a host or when, and workers on other hosts cannot learn of new GPUs; so with `devices` (real GPUs) a
    run may only grow, on one machine, where its workers keep their GPUs. A run on one machine names it `localhost`, one
    on several by addresses, and it cannot change from one to the other while it runs."""
    old, new = _noted(before), _noted(after)
    if old == new or (not devices and old.keys() & new.keys()):
        return after
    if not devices or old.keys() != {ITSELF} or new.keys() != {ITSELF} or not set(old[ITSELF]) <= set(new[ITSELF]):
        return ""
    gpus = [*old[ITSELF], *(gpu for gpu in new[ITSELF] if gpu not in old[ITSELF])]
    return _script(f"{ITSELF}={','.join(gpus)}", [f"{ITSELF}:{len(gpus)}"])


def _noted(script: str) -> dict[str, list[str]]:
    line = next((line for line in script.splitlines() if line.startswith(_NOTE)), "")
    pairs = (entry.rpartition("=") for entry in line.removeprefix(_NOTE).split())
    return {host: gpus.split(",") if gpus else [] for host, _, gpus in pairs}


def _slots(site: Site) -> list[tuple[str, int]]:
    names = (ITSELF,) if len(site.addresses) == 1 else site.addresses
    return [(name, max(1, len(part.gpus))) for name, part in zip(names, site.allocation.parts, strict=True)]
