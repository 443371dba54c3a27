"""The composition root: the one place that knows every part of the daemon, puts them together and runs them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from swell import __version__, listening, standing_by
from swell.api.app import create_app
from swell.api.auth import run_token
from swell.checkpoints.carrying import Carrier, Limits, Target
from swell.checkpoints.copies import CopyStore
from swell.config import Config
from swell.core.containers import outside
from swell.core.errors import Conflict, NotFound, StoreError, StoreFenced, SwellError
from swell.core.events import CopiedOutputs
from swell.core.ids import RunId
from swell.core.pods import PODS
from swell.core.resources import Node
from swell.core.state import JobRecord
from swell.daemon.clock import SystemClock
from swell.daemon.committer import Committer
from swell.daemon.compaction import compaction
from swell.daemon.engine import Engine, Settings
from swell.daemon.far_outputs import bring_outputs
from swell.daemon.hooks import Hooks
from swell.daemon.passes import Timing
from swell.daemon.retention import retention
from swell.daemon.run_leases import Leasing
from swell.daemon.still_ours import StillOurs
from swell.executors.container import ContainerSettings
from swell.executors.files import FileRouter
from swell.executors.hosts import HostExecutor, LocalExecutor
from swell.executors.inventory import Machine, Probe
from swell.executors.kubernetes.api import connect
from swell.executors.kubernetes.executor import KubernetesExecutor
from swell.executors.kubernetes.preparation import PodPreparation
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.executors.ownership import make_readable, open_ways
from swell.executors.preparation import LocalPreparation
from swell.executors.router import Router
from swell.executors.ssh.bundle import archive_of
from swell.executors.ssh.executor import SshExecutor, upstream_to
from swell.executors.ssh.machines import SshMachines
from swell.executors.ssh.preparation import SshPreparation
from swell.home import (
    HOOKS_NAME,
    LOCK_NAME,
    LOG_NAME,
    check_state_files,
    keep_slots,
    make_directory,
    open_private,
    token_of,
    write_private,
)
from swell.jobfile import files, outputs
from swell.placement.interference import WatchedBook
from swell.plan.deadlines import Patience
from swell.policy.custom import load_policy_files
from swell.ports import Executor
from swell.sdk import ship
from swell.shim.containers import why_none
from swell.shim.leftovers import Leftovers
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore
from swell.store.open import open_store
from swell.store.sql import SqlStore
from swell.swelljobs.controller import SwellJobs

log = logging.getLogger(__name__)

SWEEP_S = 3600.0
_OBJECTS = 0.25
"""Of the requests to an API server that are for SwellJob objects."""
COPIES = "copies"
"""Copies of checkpoints of jobs on other machines, below the home."""
_NO_RUN = RunId(0, 0)


class AlreadyServed(Conflict):
    """Another daemon has this state directory; the message says where it answers."""


def main(config: Config) -> int:
    """Serve until SIGTERM or SIGINT. Jobs go on running afterwards; the next start adopts them."""
    load_policy_files(config.policy_files)
    prepare_home(config)
    with held(config):
        keep_slots(config.home, config.gpus)
        _log_to(config.home / LOG_NAME)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config))
    return 0


def prepare_home(config: Config) -> None:
    """Directories only: files are written by whoever holds the home."""
    homes = dict.fromkeys((config.home, config.shared_dir))
    for path in (*homes, config.runs_dir, config.files_dir, config.checkpoints_dir, config.work_dir):
        make_directory(path)
    for home in homes:
        check_state_files(home)
    if config.as_submitter:
        open_ways(config.shared_dir, (config.runs_dir, config.checkpoints_dir, config.work_dir))


class held:  # noqa: N801 - reads as a word: `with held(config)`
    """The state directory is ours as long as this is open: a lock, which the system drops when the process dies."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = open_private(self._config.home / LOCK_NAME)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise AlreadyServed(
                f"a daemon for {self._config.home} is running already at {_address(self._config)}; "
                f"use it, or stop it with `swell down`{_own_home(self._config)}"
            ) from None

    def __exit__(self, *_: object) -> None:
        self._config.address_file.unlink(missing_ok=True)
        os.close(self._fd)


def _own_home(config: Config) -> str:
    return "; a standby needs a --home of its own" if config.standby else ""


def _address(config: Config) -> str:
    try:
        return str(json.loads(config.address_file.read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError):
        return "an address it has not told yet"


def _log_to(path: Path) -> None:
    os.close(open_private(path))
    handlers: list[logging.Handler] = [logging.FileHandler(path)]
    if sys.stderr.isatty():
        handlers.append(logging.StreamHandler())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=handlers)
    for chatty in ("uvicorn.access", "httpx2", "asyncssh"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


async def _serve(config: Config) -> None:
    with standing_by.setting_up(config):
        doors = listening.bind(config)
        secret, metrics_token = standing_by.shared_secret(config), token_of(config.metrics_token_file)
    store = await _store(config, doors)
    if store is None:
        return
    lost: list[StoreFenced] = []
    async with running_engine(config, doors.url, secret, store) as engine:
        app = create_app(engine, secret, config, metrics_token=metrics_token, machines=SshMachines(engine.cluster_id))
        app.state.hooks = hooks = _hooks(config, engine)
        if config.hooks:
            engine.tasks.start("hooks", hooks.run)
        engine.watch(app.state.metrics.happened, app.state.metrics.passed)
        if config.kubernetes is not None:
            swell_jobs = SwellJobs(connect(_share(config.kubernetes, _OBJECTS)), engine, engine.cluster_id)
            engine.watch(swell_jobs.happened, lambda _: None)
            engine.tasks.start("swelljobs", swell_jobs.run)
        server = listening.server_of(app)
        leaving = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, leaving.set)
        told = _told(config, doors)
        for path in (config.address_file, *([config.active_file] if config.shared else ())):
            write_private(path, json.dumps(told))
        log.info("swell %s serves %s from %s", __version__, doors.url, config.home)
        if told["warning"]:
            log.warning(told["warning"])
            print(f"swell: warning: {told['warning']}", file=sys.stderr, flush=True)
        watching = [_leave_when_lost(engine, server, lost), _leave_when_asked(engine, server, leaving)]
        tasks = [asyncio.create_task(watch) for watch in watching]
        async with listening.also_open(app, doors):
            await server.serve(sockets=[doors.plain])
        for task in tasks:
            task.cancel()
    if lost:
        raise lost[0]


async def _leave_when_asked(engine: Engine, server: listening.Server, asked: asyncio.Event) -> None:
    """Pods learn that they may go on without the daemon while it still answers."""
    await asked.wait()
    try:
        await engine.let_go()
    finally:
        server.leave()


def _told(config: Config, doors: listening.Doors) -> dict[str, str | int]:
    """What clients of this machine, and whoever comes after this daemon, read about it."""
    return {
        "url": doors.url,
        "pid": os.getpid(),
        "version": __version__,
        "warning": listening.warning_of(config),
        "public_url": doors.public_url,
        "fingerprint": doors.fingerprint,
        "machine": socket.gethostname(),
        "active_file": str(config.active_file) if config.shared else "",
    }


async def _store(config: Config, doors: listening.Doors) -> MemoryStore | SqlStore | None:
    """Ours to write; None: this was a standby, and was ended before its turn came."""
    holder = f"the daemon at {doors.public_url or doors.url} (process {os.getpid()} on {socket.gethostname()})"
    if not config.standby:
        return _opened(config.database_url, holder)
    left = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, left.set)
    write_private(config.address_file, json.dumps(_told(config, doors)))
    log.info("swell %s stands by at %s", __version__, doors.url)
    store = await standing_by.turn(config, doors, holder, left)
    log.info("the database is ours" if store else "ended before its turn came")
    return store


async def _leave_when_lost(engine: Engine, server: listening.Server, lost: list[StoreFenced]) -> None:
    """Another daemon has the database: this one must not go on answering as if it decided anything."""
    lost.append(await engine.tasks.lost())
    log.error("this daemon ends, jobs go on: %s", lost[0])
    server.leave()


def _opened(url: str, holder: str) -> MemoryStore | SqlStore:
    """Once it runs, outages heal by themselves; a start without its database is refused, and says so."""
    try:
        return open_store(url, holder=holder)
    except StoreError as error:
        what = str(error).removesuffix("it is tried again.").removesuffix("it continues by itself.").rstrip("; .")
        raise type(error)(f"the daemon did not start: {what}. Once that is mended, start it again.") from error


@asynccontextmanager
async def running_engine(config: Config, url: str, secret: str, store: MemoryStore | SqlStore) -> AsyncIterator[Engine]:
    book = WatchedBook(Book())
    clock = SystemClock(config.home / "clock.json")
    prepare = LocalPreparation(
        url=url,
        token_of=partial(run_token, secret),
        deliver=partial(files.copy_for_job, config.files_dir),
        runs_dir=config.runs_dir,
        checkpoints_dir=config.checkpoints_dir,
        work_dir=config.work_dir,
        sdk_dir=_library(config),
        as_submitter=config.as_submitter,
        containers=_containers(config, store.cluster_id),
        active_file=str(config.active_file) if config.shared else "",
    )
    probe = Probe(no_containers=lambda: why_none(config.container_runtime, os.environ))
    machine, dirs = Machine(clock, gpus=config.gpus, probe=probe), _job_dirs(config)
    holders: dict[str, HostExecutor] = {}
    carrier = Carrier(CopyStore(config.shared_dir / COPIES), _limits(config), partial(_holder_of, holders))
    hosts = LocalExecutor(
        *(config.runs_dir, clock, prepare),
        job_dirs=dirs,
        machine=machine,
        carrier=carrier,
        context_of=lambda _: prepare.context(_NO_RUN),
    )
    far = _over_ssh(config, url, secret, store, clock, carrier)
    holders.update({"local": hosts, "ssh": far})
    executors: dict[str, Executor] = {"local": hosts, "ssh": far} if config.own_machine else {"ssh": far}
    leases = Leasing()
    if config.kubernetes is not None:
        pods = _pods(config, config.kubernetes, clock, store.cluster_id, url, secret)
        executors[PODS] = pods
        leases = Leasing(
            lease_s=config.kubernetes.lease_s,
            epoch=store.epoch,
            still_ours=StillOurs(store.still_ours),
            leased=pods.leased,
        )
    engine = Engine(
        committer=Committer(store, Journal(store), book),
        record=store,
        executor=Router(executors),
        files=FileRouter({"local": hosts, "ssh": far}),
        checkpoints=far,
        book=book,
        clock=clock,
        kept_here=Leftovers(runs_dir=config.runs_dir, job_dirs=dirs).kept,
        settings=_settings(config),
        checkpoint_dir_of=lambda record: _checkpoint_dir(config, record),
        declare=partial(_declare, config.home, hosts) if config.own_machine else None,
        machines=far,
        leases=leases,
        collect=lambda record: _collect(config, engine, record),
    )
    try:
        await asyncio.to_thread(standing_by.check_machine, config, store.load)
        await engine.start()
        if config.own_machine:
            await engine.declare_slots(config.gpus)  # whoever asks first sees this machine as it is
        if config.on_server:
            engine.tasks.start("signs of life", lambda: standing_by.give_signs(config, store.epoch))
        engine.tasks.start("clock", clock.keep)
        engine.tasks.start("compaction", compaction(store, clock, keep_days=config.events_keep_days).run)
        remove = partial(engine.remove, by="jobs_keep_days")
        engine.tasks.start("retention", retention(store, remove, clock, keep_days=config.jobs_keep_days).run)
        engine.tasks.start("sweep", lambda: _sweep(config, engine, clock))
        yield engine
        await engine.stop()
    finally:
        store.close()


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


def _hooks(config: Config, engine: Engine) -> Hooks:
    return Hooks(
        config.hooks,
        state=lambda: engine.state,
        follow=engine.subscribe,
        now_s=engine.now_s,
        starvation_s=config.options.starvation_s,
        idle=engine.idle_gpus.jobs,
        kept=config.shared_dir / HOOKS_NAME,
    )


def _library(config: Config) -> Path:
    shipped = ship.ship(config.home / "sdk")
    if config.as_submitter:
        make_readable(config.home / "sdk")
    return shipped


def _share(settings: KubernetesSettings, share: float) -> KubernetesSettings:
    """Pods and SwellJobs have connections of their own; together they keep to the limit of requests."""
    return replace(settings, requests_per_s=share * settings.requests_per_s)


def _pods(
    config: Config, settings: KubernetesSettings, clock: SystemClock, cluster: str, url: str, secret: str
) -> KubernetesExecutor:
    api = connect(_share(settings, 1.0 - _OBJECTS))
    prepare = PodPreparation(
        cluster=cluster,
        namespace=api.namespace,
        url=url,
        token_of=partial(run_token, secret),
        library=ship.files(),
        settings=settings,
    )
    directory = config.shared_dir / "pods"
    return KubernetesExecutor(api, clock, cluster, prepare, prepare.library, settings=settings, directory=directory)


async def _declare(home: Path, hosts: LocalExecutor, gpus: int | None) -> Node:
    """Kept before it holds: a daemon that is killed in between comes back with what was asked for."""
    await asyncio.to_thread(keep_slots, home, gpus)
    return await hosts.declare(gpus)


async def _sweep(config: Config, engine: Engine, clock: SystemClock) -> None:
    """Every hour: working files that no waiting or running job starts from any more are deleted after some days."""
    while True:
        jobs = engine.state.jobs
        needed = frozenset(jobs[job].spec.files for job in engine.state.active)
        before_s = clock.now_s() - config.snapshot_keep_days * 86400.0
        try:
            swept = await asyncio.to_thread(files.sweep, config.files_dir, needed, before_s)
        except OSError as error:
            log.warning("old working files could not be deleted: %s", error)
        else:
            if swept:
                log.info("deleted %d snapshots of working files that no job needs", len(swept))
        await asyncio.sleep(SWEEP_S)


async def _collect(config: Config, engine: Engine, record: JobRecord) -> CopiedOutputs:
    """What `outputs` of an ended job names, copied to where its user wants it."""
    spec = record.spec
    submitted = files.unpacked_path(config.files_dir, spec.files) / spec.workdir if spec.files else None
    try:
        order = await engine.latest_order(record.id)
        if next(iter(order.nodes.values())).executor == "local":
            own = config.work_dir / str(record.id) / spec.workdir
            return await asyncio.to_thread(_deliver_outputs, record, own, submitted)
        with tempfile.TemporaryDirectory(prefix=".outputs-", dir=config.home) as folder:
            await bring_outputs(engine.files, order, submitted, Path(folder))
            return await asyncio.to_thread(_deliver_outputs, record, Path(folder), submitted)
    except (OSError, NotFound) as error:
        problem = f"they could not be brought from where it ran ({error}); `swell fetch {record.id}` tries again"
        return CopiedOutputs(into=spec.outputs_to, problem=problem)


def _deliver_outputs(record: JobRecord, directory: Path, submitted: Path | None) -> CopiedOutputs:
    spec = record.spec
    name, target = f"{spec.name}-{record.id}", Path(spec.outputs_to)
    try:
        into, names, size = outputs.deliver(directory, spec.outputs, target, name, submitted)
    except SwellError as error:
        return CopiedOutputs(into=spec.outputs_to, problem=str(error))
    nothing = "" if names else f"no file that it wrote matches {' or '.join(spec.outputs)}"
    return CopiedOutputs(into=str(into), files=len(names), bytes=size, problem=nothing)


def _checkpoint_dir(config: Config, record: JobRecord) -> Path:
    """Where a script without the library saves: in SWELL_CHECKPOINT_DIR if it uses that, else in the directory that
    its user named."""
    inside = config.work_dir / str(record.id) / record.spec.workdir / record.spec.checkpoint_dir
    named = Path(outside(record.spec, str(inside)))
    own = named / str(record.id)
    return own if own.is_dir() and any(own.iterdir()) else named


def _settings(config: Config) -> Settings:
    patience = Patience(
        gang_timeout_s=config.gang_timeout_s,
        preempt_wait_s=config.preempt_wait_s,
        resize_wait_s=config.resize_wait_s,
    )
    timing = Timing(interval_s=config.pass_interval_s, coalesce_s=config.coalesce_s, patience=patience)
    return Settings(
        policy=config.policy,
        placer=config.placer,
        options=config.options,
        idle_gpus=config.idle_gpus,
        timing=timing,
        id_file=config.shared_dir / "last-job",
        checkpoint_copy_every_s=config.checkpoint_copy_every_s,
        # With the name of the home, so that `~/.swell/work` and `$HOME/.swell/work` are found in a command as well.
        job_dirs=tuple(f"{config.shared_dir.name}/{path.name}" for path in _job_dirs(config)),
    )


def _job_dirs(config: Config) -> tuple[Path, ...]:
    return config.work_dir, config.checkpoints_dir, config.shared_dir / COPIES, config.runs_dir.parent / "set-aside"
