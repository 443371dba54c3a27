"""Turns a planned run into the plain value that executors carry out: argv, environment and directory of each worker.

Pure and golden-tested. docs/how-to/training-code.md describes the variables for users. Choices made here:

- WORLD_SIZE is the number of processes that Swell starts to train: for `per-node` that is the number of nodes (what the
  submission guide promises, and what Lightning expects beside NODE_RANK), for `per-gpu` and `ps` the number of workers.
  Launchers of frameworks set it again for the processes that they start; for mpirun, which does not, `sdk.ranked` does.
- RANK, MASTER_ADDR and MASTER_PORT go with it. `single` has none of the four: to scripts RANK means that they are one
  process of several, and then they look for LOCAL_RANK. That is set only if Swell starts one process per GPU: to
  Lightning it means that the other processes are started for it.
- NUM_GPUS is per node (Lightning's `devices`), SWELL_GPUS is all of them.
- A user's own environment takes precedence, except over SWELL_* and CUDA_VISIBLE_DEVICES, which state the allocation.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

from swell.core.ids import RunId
from swell.core.job import JobSpec, Launcher
from swell.core.resources import Node
from swell.core.state import JobRecord, Run
from swell.executors import launchers
from swell.executors.container import ContainerSettings, Own, container_of, environment_inside
from swell.executors.launchers import Process, Site
from swell.ports import Launch, Worker

HEARTBEAT_STEPS = 10
"""HEARTBEAT_FREQ of the submission guide: steps between two profiles of its library."""

PORTS_FROM, PORTS_PER_RUN, PORT_BLOCKS = 20_000, 16, 750
"""Below the ephemeral ports of the system (32768 and up)."""

_ONE_A_GPU = frozenset({Launcher.PER_GPU, Launcher.PS})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """The facts about one node and the daemon that a launch needs. Directories are paths on the node."""

    url: str  # where the in-job library reaches the daemon
    token: str  # of this run
    runs_dir: str
    checkpoints_dir: str
    work_dir: str  # one directory per job under it, kept from attempt to attempt: its own copy of the snapshot
    sdk_dir: str  # goes on PYTHONPATH; see swell.sdk.ship
    submit_shell: bool = False  # the node is the machine of the submitters' shells, so their PATH is valid there
    master_port: int = 0  # 0: derived from the run
    as_submitter: bool = False  # processes belong to the machine's user of the same name as the job's
    containers: ContainerSettings = field(default_factory=ContainerSettings)
    active_file: str = ""  # has the daemon's address, after another one has taken over; empty: it stays at `url`


def build_launch(record: JobRecord, nodes: Mapping[str, Node], contexts: Mapping[str, LaunchContext]) -> Launch:
    """All workers of the job's current run. `contexts` by node: directories and addresses differ between machines."""
    run, spec = _run_of(record), record.spec
    first = contexts[run.allocation.nodes[0]]
    port = first.master_port or port_of(run.id, first.runs_dir)
    site = launchers.site_of(run.allocation, nodes, port, _discovery(run.id, first))
    started = launchers.processes(spec, site)
    workers = tuple(
        _contained(worker, record, nodes[worker.node], context)
        for rank, process in enumerate(started)
        for context in (contexts[process.part.node],)
        for env in (environment(record, site, started, process, rank, context),)
        for worker in (_worker(rank, process, env, record, context),)
    )
    return Launch(
        run=run.id,
        workers=workers,
        grace_s=spec.grace_s,
        discovery=launchers.discovery_script(site) if spec.launcher is Launcher.HOROVOD else "",
        secrets=(*spec.secrets, "SWELL_TOKEN"),
    )


def _run_of(record: JobRecord) -> Run:
    assert record.run is not None, "only a planned run can be launched"
    return record.run


def port_of(run: RunId, home: str = "") -> int:
    """The first of the run's ports: the same at every launch of the run, another for the next attempt and for jobs with
    near ids. Two daemons on one machine, distinguished by their home, begin at different ports."""
    return PORTS_FROM + PORTS_PER_RUN * ((run.job + 331 * run.attempt + crc32(home.encode())) % PORT_BLOCKS)


def _discovery(run: RunId, context: LaunchContext) -> str:
    return posixpath.join(context.runs_dir, str(run), "discovery")


def journal(run: RunId, context: LaunchContext) -> str:
    """The file in which the run's library notes its progress."""
    return posixpath.join(context.runs_dir, str(run), "epochs")


def _worker(rank: int, process: Process, env: Mapping[str, str], record: JobRecord, context: LaunchContext) -> Worker:
    spec = record.spec
    return Worker(
        rank=rank,
        node=process.part.node,
        argv=process.argv,
        env=env,
        cwd=directory(record, context),
        gpus=process.gpus,
        role=process.role,
        shell_env=context.submit_shell and bool(spec.shell_env),
        path_first=_path_first(spec, context),
        image=spec.image,
        mounts=spec.mounts,
        ports=spec.ports,
        cpus=spec.cpus,
        memory_mib=spec.memory_mib,
        user=spec.user if context.as_submitter else "",
    )


def _contained(worker: Worker, record: JobRecord, node: Node, context: LaunchContext) -> Worker:
    """The worker with its container, if it has an image."""
    if not worker.image:
        return worker
    run = _run_of(record).id
    own = Own(
        work_dir=posixpath.join(context.work_dir, str(record.id)),
        checkpoints_dir="" if record.spec.checkpoint_dir else checkpoints(record, context),
        sdk_dir=context.sdk_dir,
        journal=journal(run, context),
        socket_dir=posixpath.dirname(context.url.removeprefix("unix:")) if context.url.startswith("unix:") else "",
    )
    container = container_of(run, worker, node, own, context.containers)
    return replace(worker, container=container, env=environment_inside(worker.env, container["gpus"]))


def directory(record: JobRecord, context: LaunchContext) -> str:
    """The directory in which the command runs: `workdir`, else the job's own with its copy of the snapshot."""
    return posixpath.join(context.work_dir, str(record.id), record.spec.workdir).rstrip("/")


def checkpoints(record: JobRecord, context: LaunchContext) -> str:
    """The job's checkpoint directory, below the one that its user specified, if any. It is per job, because the jobs of
    an array share the spec but not the files."""
    base = context.checkpoints_dir
    if record.spec.checkpoint_dir:
        base = posixpath.join(directory(record, context), record.spec.checkpoint_dir)
    return posixpath.join(base, str(record.id))


def environment(
    record: JobRecord, site: Site, started: Sequence[Process], process: Process, rank: int, context: LaunchContext
) -> Mapping[str, str]:
    """The environment of a worker, without what its node's executor adds."""
    env = {
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(max(1, record.spec.cpus)),
        **_distributed(record.spec, site, started, process, rank),
        **_guide(record, site, process),
        **(record.spec.shell_env if context.submit_shell and not record.spec.image else {}),
        **record.spec.env,
        **_given(process),
        **_swell(record, started, process, rank, context),
        **_parameters(record.spec),
    }
    user_path = env.get("PYTHONPATH", "")
    env["PYTHONPATH"] = f"{context.sdk_dir}:{user_path}" if user_path else context.sdk_dir
    if record.spec.python:
        env["SWELL_PYTHON"] = record.spec.python
    return dict(sorted(env.items()))


def _path_first(spec: JobSpec, context: LaunchContext) -> tuple[str, ...]:
    """For a job with its own interpreter: the directory with a `python` and `python3` that start SWELL_PYTHON."""
    return (posixpath.join(context.sdk_dir, "bin"),) if spec.python else ()


def _given(process: Process) -> Mapping[str, str]:
    """The worker's GPUs. An empty value hides all GPUs from a worker that has none."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in process.gpus)}


def _distributed(
    spec: JobSpec, site: Site, started: Sequence[Process], process: Process, rank: int
) -> Mapping[str, str]:
    env = {
        "NODE_RANK": str(process.node_rank),
        "TF_CONFIG": tf_config(site, started, process),
        "PL_TORCH_DISTRIBUTED_BACKEND": "nccl" if site.allocation.gpus else "gloo",
    }
    if interface := site.interfaces[process.node_rank] if site.interfaces else "":
        env["GLOO_SOCKET_IFNAME"] = env["NCCL_SOCKET_IFNAME"] = interface
    if spec.launcher is not Launcher.SINGLE:
        env["MASTER_ADDR"], env["MASTER_PORT"] = site.master, str(site.port)
    if spec.launcher not in (Launcher.SINGLE, Launcher.MPI):  # mpirun numbers its processes (`sdk.ranked`)
        env["RANK"], env["WORLD_SIZE"] = str(rank), str(_trainers(started))
    if spec.launcher in (Launcher.MPI, Launcher.HOROVOD):
        env[launchers.HOST_GPUS] = launchers.host_gpus(site)
    if spec.launcher in _ONE_A_GPU:
        env["LOCAL_RANK"] = str(process.local)
        env["LOCAL_WORLD_SIZE"] = str(
            sum(other.node_rank == process.node_rank and other.role == process.role for other in started)
        )
    return env


def _trainers(started: Sequence[Process]) -> int:
    return sum(process.role == "worker" for process in started)


def tf_config(site: Site, started: Sequence[Process], process: Process) -> str:
    """TensorFlow's view of the run. Servers listen above the workers of the same node."""
    cluster: dict[str, list[str]] = {}
    per_node = max(other.local for other in started if other.role == "worker") + 1
    for other in started:
        offset = other.local + (per_node if other.role == "server" else 0)
        name = "ps" if other.role == "server" else "worker"
        cluster.setdefault(name, []).append(f"{site.addresses[other.node_rank]}:{site.port + 1 + offset}")
    task = {"type": "ps" if process.role == "server" else "worker", "index": process.index}
    return json.dumps({"cluster": cluster, "task": task}, sort_keys=True)


def _guide(record: JobRecord, site: Site, process: Process) -> Mapping[str, str]:
    """The two tables of the submission guide that are not in `_distributed`."""
    spec = record.spec
    allocation = site.allocation
    done, total = (record.epochs_done, spec.epochs) if record.unit == "epoch" else (0, 0)
    return {
        "JOB_UUID": str(record.id),
        "JOB_RESTARTED": "TRUE" if record.epochs_done else "FALSE",
        "RESERVED_MEM": str(allocation.share.memory_mib if allocation.share else spec.gpus.memory_mib),
        "EPOCHS_DONE": str(done),
        "HEARTBEAT_FREQ": str(HEARTBEAT_STEPS),
        "NODELIST": ",".join(allocation.nodes),
        "NUM_GPUS": str(len(process.part.gpus)),
        "NUM_NODES": str(len(allocation.parts)),
        "BATCH_SIZE": str(spec.batch_size),
        "EPOCHS_TO_BE_DONE": str(total),
        "TRAINING_SET_SIZE": str(spec.dataset_size),
    }


def _swell(
    record: JobRecord, started: Sequence[Process], process: Process, rank: int, context: LaunchContext
) -> Mapping[str, str]:
    run = _run_of(record)
    env = {
        "SWELL_URL": context.url,
        "SWELL_RUN": str(run.id),
        "SWELL_TOKEN": context.token,
        "SWELL_JOB": str(record.id),
        "SWELL_JOB_NAME": record.spec.name,
        "SWELL_ATTEMPT": str(run.id.attempt),
        "SWELL_RANK": str(rank),
        "SWELL_LOCAL_RANK": str(process.local),
        "SWELL_WORLD_SIZE": str(_trainers(started)),
        "SWELL_ROLE": process.role,
        "SWELL_LAUNCHER": str(record.spec.launcher),
        "SWELL_CHECKPOINT_DIR": checkpoints(record, context),
        **_progress(record),
        "SWELL_GPUS": str(run.allocation.gpus),
        "SWELL_NODES": str(len(run.allocation.parts)),
        "SWELL_GPU_TYPE": run.allocation.gpu_type,
        "SWELL_SHARED_GPU": "1" if run.allocation.share else "0",
        "SWELL_ADAPTIVE_BATCH": "1" if record.spec.adaptive_batch else "0",
        **_constant_batch(record.spec, run.allocation.gpus),
    }
    env["SWELL_JOURNAL"] = journal(run.id, context)
    if context.active_file:
        env["SWELL_ACTIVE_FILE"] = context.active_file
    if record.spec.launcher in launchers.CARRIED:
        env["SWELL_LEFT_MARK"] = posixpath.join(checkpoints(record, context), f".left-{run.id}")
    return env


def _progress(record: JobRecord) -> Mapping[str, str]:
    """The progress and the length of the job, in its unit."""
    if record.unit == "epoch":
        return {"SWELL_EPOCHS_DONE": str(record.epochs_done), "SWELL_EPOCHS": str(record.spec.epochs)}
    done, total = record.epochs_saved, record.epochs_total
    return {"SWELL_UNIT": record.unit, "SWELL_UNITS": str(total), "SWELL_UNITS_DONE": str(done)}


def _constant_batch(spec: JobSpec, gpus: int) -> Mapping[str, str]:
    """How the global batch is divided over the GPUs: per GPU never more than at the job's maximum size, the rest by
    accumulation, so that memory use is similar at every size. Unset if it cannot be divided evenly."""
    each, rest = divmod(spec.batch_size, max(1, gpus))
    if rest or not each:
        return {}
    at_most = -(-spec.batch_size // max(1, spec.gpus.max))
    local = next(size for size in range(min(each, at_most), 0, -1) if each % size == 0)
    return {"SWELL_LOCAL_BATCH": str(local), "SWELL_ACCUMULATION": str(each // local)}


def _parameters(spec: JobSpec) -> Mapping[str, str]:
    """An array element's index and parameters."""
    env = {f"SWELL_PARAM_{_upper(name)}": value for name, value in sorted(spec.array_parameters.items())}
    if spec.array_index >= 0:
        env["SWELL_INDEX"] = str(spec.array_index)
    return env


def _upper(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())
