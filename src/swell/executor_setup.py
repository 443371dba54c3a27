"""Builds the daemon's executors from its configuration: its own machine, machines over SSH, pods of a cluster.

Called by `serve` only. It starts nothing and talks to no machine; the engine does, through the executors it gets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from swell.api.auth import run_token
from swell.checkpoints.carrying import Carrier, Limits, Target
from swell.checkpoints.copies import CopyStore
from swell.config import Config
from swell.core.ids import RunId
from swell.core.pods import PODS
from swell.core.resources import Node
from swell.core.state import JobRecord
from swell.daemon.clock import SystemClock
from swell.daemon.run_leases import Leasing
from swell.daemon.still_ours import StillOurs
from swell.executors.container import ContainerSettings
from swell.executors.hosts import HostExecutor
from swell.executors.inventory import Machine, Probe
from swell.executors.kubernetes.api import connect
from swell.executors.kubernetes.executor import KubernetesExecutor
from swell.executors.kubernetes.preparation import PodPreparation
from swell.executors.kubernetes.reach import Reach
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.executors.local import LocalExecutor
from swell.executors.ownership import make_readable
from swell.executors.preparation import LocalPreparation
from swell.executors.ssh.bundle import archive_of
from swell.executors.ssh.executor import SshExecutor, upstream_to
from swell.executors.ssh.preparation import SshPreparation
from swell.job_directories import COPIES, job_dirs
from swell.jobfile import files
from swell.ports import Check, Executor
from swell.sdk import ship
from swell.shim.containers import why_none
from swell.store.memory import MemoryStore
from swell.store.sql import SqlStore

_SWELLJOBS_SHARE = 0.25
"""Share of the requests to a Kubernetes API server that SwellJob objects may use; pods use the rest."""
_NO_RUN = RunId(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """`by_name`: those that nodes may declare. Without a machine of its own the daemon offers no `local` there, but
    the local executor still reads what earlier runs left in its directories."""

    local: LocalExecutor
    ssh: SshExecutor
    by_name: Mapping[str, Executor]
    leases: Leasing
    findings: Callable[[], Sequence[Check]] = tuple


def build_executors(
    config: Config, url: str, secret: str, store: MemoryStore | SqlStore, clock: SystemClock
) -> Executors:
    holders: dict[str, HostExecutor] = {}
    carrier = Carrier(CopyStore(config.shared_dir / COPIES), _limits(config), partial(_holder_of, holders))
    local = _own_machine(config, url, secret, store.cluster_id, clock, carrier)
    ssh = _over_ssh(config, url, secret, store, clock, carrier)
    holders.update({"local": local, "ssh": ssh})
    by_name: dict[str, Executor] = {"local": local, "ssh": ssh} if config.own_machine else {"ssh": ssh}
    leases = Leasing()
    found: list[Mapping[str, Check]] = []
    if config.kubernetes is not None:
        pods, reach = _pods(config, config.kubernetes, clock, store.cluster_id, url, secret)
        by_name[PODS] = pods
        leases = Leasing(
            lease_s=config.kubernetes.lease_s,
            epoch=store.epoch,
            still_ours=StillOurs(store.still_ours),
            leased=pods.leased,
        )
        found = [pods.rules.findings, reach.findings]

    def findings() -> tuple[Check, ...]:
        return tuple(check for checks in found for check in checks.values())

    return Executors(local=local, ssh=ssh, by_name=by_name, leases=leases, findings=findings)


def for_swelljobs(settings: KubernetesSettings) -> KubernetesSettings:
    """Settings of the connection that watches SwellJob objects."""
    return _share(settings, _SWELLJOBS_SHARE)


def _own_machine(
    config: Config, url: str, secret: str, cluster_id: str, clock: SystemClock, carrier: Carrier
) -> LocalExecutor:
    prepare = LocalPreparation(
        url=url,
        token_of=partial(run_token, secret),
        deliver=partial(files.copy_for_job, config.files_dir),
        runs_dir=config.runs_dir,
        checkpoints_dir=config.checkpoints_dir,
        work_dir=config.work_dir,
        sdk_dir=_library(config),
        as_submitter=config.as_submitter,
        containers=_containers(config, cluster_id),
        active_file=str(config.active_file) if config.shared else "",
    )
    probe = Probe(no_containers=lambda: why_none(config.container_runtime, os.environ))
    return LocalExecutor(
        *(config.runs_dir, clock, prepare),
        job_dirs=job_dirs(config),
        machine=Machine(clock, gpus=config.gpus, probe=probe),
        carrier=carrier,
        context_of=lambda _: prepare.context(_NO_RUN),
    )


def _library(config: Config) -> Path:
    shipped = ship.ship(config.home / "sdk")
    if config.as_submitter:
        make_readable(config.home / "sdk")
    return shipped


async def _holder_of(holders: Mapping[str, HostExecutor], record: JobRecord, node: Node) -> Target | None:
    found = holders.get(node.executor)
    return None if found is None else found.checkpoint_at(record, node.name)


def _limits(config: Config) -> Limits:
    return Limits(job_mib=config.checkpoint_copy_mib, mib_per_s=config.checkpoint_copy_mib_per_s)


def _over_ssh(
    config: Config, url: str, secret: str, store: MemoryStore | SqlStore, clock: SystemClock, carrier: Carrier
) -> SshExecutor:
    preparation = SshPreparation(
        cluster_id=store.cluster_id,
        token_of=partial(run_token, secret),
        snapshot=partial(files.archive, config.files_dir),
        library=archive_of(ship.files(), frozenset(ship.PROGRAMS)),
        containers=_containers(config, store.cluster_id),
    )
    api = urlsplit(url)
    return SshExecutor(
        config.shared_dir / "far-runs",
        clock,
        preparation,
        epoch=store.epoch,
        upstream=upstream_to(api.hostname or "127.0.0.1", api.port or 0),
        still_ours=StillOurs(store.still_ours),
        carrier=carrier,
    )


def _containers(config: Config, cluster_id: str) -> ContainerSettings:
    return ContainerSettings(
        cluster_id=cluster_id,
        runtime=config.container_runtime,
        options=config.container_options,
        mount_sources=config.container_mounts,
        shm_mib=config.container_shm_mib,
        pids=config.container_pids,
        pull_timeout_s=config.container_pull_timeout_s,
        gpu_probe_s=config.container_gpu_probe_s,
    )


def _share(settings: KubernetesSettings, share: float) -> KubernetesSettings:
    """Pods and SwellJobs have a connection each; together they stay within the configured rate of requests."""
    return replace(settings, requests_per_s=share * settings.requests_per_s)


def _pods(
    config: Config, settings: KubernetesSettings, clock: SystemClock, cluster: str, url: str, secret: str
) -> tuple[KubernetesExecutor, Reach]:
    api = connect(_share(settings, 1.0 - _SWELLJOBS_SHARE))
    prepare = PodPreparation(
        cluster=cluster,
        namespace=api.namespace,
        url=url,
        token_of=partial(run_token, secret),
        library=ship.files(),
        settings=settings,
    )
    reach = Reach(api, cluster, url, settings)
    directory = config.shared_dir / "pods"
    executor = KubernetesExecutor(
        *(api, clock, cluster, prepare, prepare.library), settings=settings, directory=directory, reach=reach
    )
    return executor, reach
