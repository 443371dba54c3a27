"""The job spec: what a user requests. `jobfile` checks it; it is frozen from then on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Launcher(StrEnum):
    SINGLE = "single"  # one process, whatever the number of GPUs
    PER_NODE = "per-node"
    PER_GPU = "per-gpu"
    TORCHRUN = "torchrun"
    HOROVOD = "horovod"
    MPI = "mpi"
    PS = "ps"


RESIZES_IN_PLACE = frozenset({Launcher.HOROVOD})
"""Launchers that can resize a running job without a restart."""


class Preemptible(StrEnum):
    """Whether a run may be preempted, resized or moved."""

    AUTO = "auto"  # yes if it can resume: it uses the library, or specifies a checkpoint directory
    RESTART = "restart"  # yes, even if it starts again from nothing: its user specified that
    NEVER = "never"


class RestartPolicy(StrEnum):
    """Whether the job runs again after a run was lost (its node or shim died), or failed with retries left."""

    ON_FAILURE = "on-failure"
    NEVER = "never"


class IfUnreachable(StrEnum):
    """What happens to a job whose machine was lost with its files."""

    AUTO = "auto"  # move, if a copy of its checkpoint is elsewhere or nothing was saved yet; else wait for the machine
    WAIT = "wait"  # for the machine, however long
    MOVE = "move"  # with the latest copy, or from the beginning


PRIORITIES: Mapping[str, int] = {"low": -10, "normal": 0, "high": 10, "urgent": 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """How many GPUs. `allowed` lists the sizes between min and max; empty means all of them."""

    min: int = 1
    max: int = 1
    start: int = 0  # what a policy that is not elastic gives; 0 means min
    allowed: tuple[int, ...] = ()
    types: tuple[str, ...] = ()  # pinned: only these; empty means any
    prefer: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    memory_mib: int = 0  # per GPU
    share: bool = False
    utilisation_milli: int = 0  # of one GPU's compute, when shared; 0: unset, accounted by memory only

    @property
    def requested(self) -> int:
        return self.start or self.min

    def sizes(self) -> tuple[int, ...]:
        """Allowed GPU counts, ascending."""
        return self.allowed or tuple(range(self.min, self.max + 1))

    @property
    def first_size(self) -> int:
        """The smallest allowed size that is at least the requested one: the only size of a job that cannot be
        resized."""
        sizes = self.sizes()
        return next((size for size in sizes if size >= self.requested), sizes[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Parameter-server jobs: `servers` extra workers, on CPU, beside one worker per GPU."""

    servers: int = 1
    server_command: tuple[str, ...] = ()  # empty: the same command, distinguished by SWELL_ROLE


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVolume:
    """A directory of a pod. Exactly one of `claim`, `config_map`, `secret`, `host_path` names its source."""

    mount: str  # the path in the container
    claim: str = ""  # a PersistentVolumeClaim
    config_map: str = ""
    secret: str = ""
    host_path: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """Options of a job's pods, on nodes of a Kubernetes cluster. Secrets are named; their values are not in it."""

    namespace: str = ""  # empty: the daemon's
    service_account: str = ""
    priority_class: str = ""
    pull_secrets: tuple[str, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    overrides: Mapping[str, object] = field(default_factory=dict)  # merged into the pod's spec last
    worker_command: tuple[str, ...] = ()  # of the hosts of an MPIJob; empty: an SSH server


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training job. Times in seconds, memory in MiB; every default is what a newcomer would expect."""

    name: str
    command: tuple[str, ...]  # argv; a shell line is ("/bin/sh", "-c", line)
    user: str = ""
    team: str = ""
    gpus: GpuRequest = field(default_factory=GpuRequest)
    cpus: int = 1  # per worker process
    memory_mib: int = 0  # per worker process; 0: not accounted
    node_labels: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()  # names of the only nodes it may run on; empty: any
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    shell_env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the submitting shell that select programs (PATH, VIRTUAL_ENV, …). They apply on the machine of that
    shell; other machines have their own. `env` takes precedence."""
    python: str = ""  # the interpreter that `python` stands for in the command; empty: the first on the PATH
    secrets: tuple[str, ...] = ()  # names in env whose values are never shown
    workdir: str = ""  # where the command runs; empty: the snapshot of the files at submit
    files: str = ""  # content hash of the snapshot, filled at submit
    mounts: tuple[Mount, ...] = ()
    kubernetes: PodOptions | None = None  # None: it does not run as pods
    ports: Mapping[str, str] = field(default_factory=dict)
    launcher: Launcher = Launcher.SINGLE
    roles: Roles | None = None
    priority: int = 0
    weight: float = 1.0
    epochs: int = 0  # length of the training, in `unit`; 0: unset
    unit: str = "epoch"  # or step, token, sample
    batch_size: int = 0
    dataset_size: int = 0
    estimated_s: float = 0.0  # its user's estimate at the requested size; 0: unset
    family: str = ""  # jobs of one family share a speed model; empty: derived from the command
    adaptive_batch: bool = False
    checkpoint_dir: str = ""  # specified by its user; the library always has its own
    copy_checkpoints: bool = True  # to the daemon's store, so that it can continue on another machine
    if_unreachable: IfUnreachable = IfUnreachable.AUTO
    may_idle: bool = False  # nothing is reported or done about GPUs that it does not use
    uses_library: bool = False  # the command calls `swell` (or kubernetesdlprofile): it can stop and resume
    progress_patterns: tuple[str, ...] = ()
    preemptible: Preemptible = Preemptible.AUTO
    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    retries: int = 0
    backoff_s: float = 5.0  # doubles at each failure, at most an hour
    time_limit_s: float = 0.0  # of running time over all attempts; 0: none
    grace_s: float = 30.0  # from a stop to SIGTERM (jobs with the library); from SIGTERM to SIGKILL (all)
    deadline_s: float = 0.0  # absolute time; 0: none
    depends_on: tuple[int, ...] = ()  # must complete first
    after_any: tuple[int, ...] = ()  # must end first, however
    after_failure: tuple[int, ...] = ()  # must end first, and not complete
    outputs: tuple[str, ...] = ()  # patterns of files that are copied to `outputs_to` when the job has ended
    outputs_to: str = ""  # an absolute directory on the daemon's machine
    array_index: int = -1  # -1: not an element of an array
    array_parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def resumable(self) -> bool:
        """Whether it can stop and continue later from its last checkpoint."""
        return self.uses_library or bool(self.checkpoint_dir)

    @property
    def may_be_stopped(self) -> bool:
        """Whether it may be preempted, resized or moved: it can resume, or its user accepts a start from scratch."""
        if self.preemptible is Preemptible.NEVER:
            return False
        return self.resumable or self.preemptible is Preemptible.RESTART

    @property
    def why_not_stopped(self) -> str:
        """For people: why its runs may not be stopped before they end; empty if they may."""
        if self.may_be_stopped:
            return ""
        if self.preemptible is Preemptible.NEVER:
            return "it says preemptible: never"
        return "it neither uses the swell library nor names a checkpoint directory"

    @property
    def dependencies(self) -> tuple[int, ...]:
        return (*self.depends_on, *self.after_any, *self.after_failure)

    @property
    def cpu_only(self) -> bool:
        return self.gpus.max == 0

    @property
    def scales_in_place(self) -> bool:
        return self.launcher in RESIZES_IN_PLACE
