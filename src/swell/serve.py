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
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from starlette.types import ASGIApp

from swell import __version__, listening, standing_by
from swell.api.app import create_app
from swell.config import Config, ConfigError
from swell.core.errors import Conflict, StoreError, SwellError
from swell.core.resources import Node
from swell.daemon.clock import SystemClock
from swell.daemon.committer import Committer
from swell.daemon.compaction import compaction
from swell.daemon.engine import Engine, Settings
from swell.daemon.hooks import Hooks
from swell.daemon.passes import Timing
from swell.daemon.retention import retention
from swell.executor_setup import Executors, build_executors, for_swelljobs
from swell.executors.files import FileRouter
from swell.executors.kubernetes.api import connect
from swell.executors.local import LocalExecutor
from swell.executors.ownership import open_ways
from swell.executors.router import Router
from swell.executors.ssh.machines import SshMachines
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
from swell.job_directories import checkpoint_dir, collect_outputs, job_dirs, sweep_snapshots
from swell.own_log import log_to
from swell.placement.interference import WatchedBook
from swell.plan.deadlines import Patience
from swell.policy.custom import load_policy_files
from swell.shim.leftovers import Leftovers
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore
from swell.store.open import open_store
from swell.store.sql import SqlStore
from swell.swelljobs.controller import SwellJobs

log = logging.getLogger(__name__)

OTLP_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Where spans go, if the configuration does not say: standard names, read by OpenTelemetry itself."""


HOME_LOOK_S = 5.0
"""So often the daemon looks whether its home is still there."""


class HomeDeleted(SwellError):
    """Somebody deleted the state directory of a daemon that ran."""


class AlreadyServed(Conflict):
    """Another daemon has this state directory; the message says where it answers."""


def main(config: Config) -> int:
    """Serve until SIGTERM or SIGINT. Jobs go on running afterwards; the next start adopts them."""
    load_policy_files(config.policy_files)
    prepare_home(config)
    with held(config) as home:
        keep_slots(config.home, config.gpus)
        log_to(config.home / LOG_NAME, as_json=config.log_format == "json", to_stderr=config.log_stderr)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, home))
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

    def __enter__(self) -> held:
        self._fd = open_private(self._config.home / LOCK_NAME)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise AlreadyServed(
                f"a daemon for {self._config.home} is running already at {_address(self._config)}; "
                f"use it, or stop it with `swell down`{_own_home(self._config)}"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        if not self.deleted():
            self._config.address_file.unlink(missing_ok=True)
        os.close(self._fd)

    def deleted(self) -> bool:
        """The directory, or what was in it: then another daemon may begin in its place. A file system that does not
        answer proves nothing."""
        try:
            return not os.path.samestat((self._config.home / LOCK_NAME).stat(), os.fstat(self._fd))
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False


def _own_home(config: Config) -> str:
    return "; a standby needs a --home of its own" if config.standby else ""


def _address(config: Config) -> str:
    try:
        return str(json.loads(config.address_file.read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError):
        return "an address it has not told yet"


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


async def _serve(config: Config, home: held) -> None:
    with standing_by.setting_up(config):
        doors = listening.bind(config)
        secret, metrics_token = standing_by.shared_secret(config), token_of(config.metrics_token_file)
    store = await _store(config, doors)
    if store is None:
        return
    lost: list[SwellError] = []
    async with AsyncExitStack() as closing, running_engine(config, doors.url, secret, store) as engine:
        app = create_app(engine, secret, config, metrics_token=metrics_token, machines=SshMachines(engine.cluster_id))
        app.state.hooks = hooks = _hooks(config, engine)
        if config.hooks:
            engine.tasks.start("hooks", hooks.run)
        engine.watch(app.state.metrics.happened, app.state.metrics.passed)
        if config.kubernetes is not None:
            swell_jobs = SwellJobs(connect(for_swelljobs(config.kubernetes)), engine, engine.cluster_id)
            engine.watch(swell_jobs.happened, lambda _: None)
            engine.tasks.start("swelljobs", swell_jobs.run)
        served = _traced(config, engine, app, closing)
        server = listening.server_of(served)
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
        watching = [
            _leave_when_lost(engine, server, lost),
            _leave_when_deleted(home, config, server, lost),
            _leave_when_asked(engine, server, leaving),
        ]
        tasks = [asyncio.create_task(watch) for watch in watching]
        async with listening.also_open(served, doors):
            await server.serve(sockets=[doors.plain])
        for task in tasks:
            task.cancel()
    if lost:
        raise lost[0]


def _traced(config: Config, engine: Engine, app: ASGIApp, closing: AsyncExitStack) -> ASGIApp:
    """With spans of what it does, where somebody receives them; else the application as it is, and nothing imported."""
    named = next((name for name in OTLP_VARIABLES if os.environ.get(name)), "")
    if not config.otlp_endpoint and not named:
        return app
    try:
        from swell.tracing import Tracing
    except ImportError as error:
        text = "OpenTelemetry is not installed, so there are no spans; run: pip install 'swell[otel]'"
        if config.otlp_endpoint:
            raise ConfigError(f"otlp_endpoint is set: {text}") from error
        log.warning("%s is set: %s", named, text)
        return app
    tracing = Tracing(config.otlp_endpoint, engine.cluster_id)
    engine.watch(tracing.happened, tracing.passed)
    closing.push_async_callback(asyncio.to_thread, tracing.close)
    return tracing.around(app)


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


async def _leave_when_deleted(home: held, config: Config, server: listening.Server, lost: list[SwellError]) -> None:
    """What is decided from then on would be lost: the database has no name any more."""
    while not await asyncio.to_thread(home.deleted):
        await asyncio.sleep(HOME_LOOK_S)
    lost.append(HomeDeleted(f"{config.home} was deleted, with its lock; `swell up` begins anew there"))
    log.error("this daemon ends, what runs goes on: %s", lost[-1])
    server.leave()


async def _leave_when_lost(engine: Engine, server: listening.Server, lost: list[SwellError]) -> None:
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
    clock = SystemClock(config.home / "clock.json")
    book = WatchedBook(Book(fits_on_ask=False))
    committer = Committer(store, Journal(store), book)
    engine = _engine(config, store, committer, book, clock, build_executors(config, url, secret, store, clock))
    try:
        await asyncio.to_thread(standing_by.check_machine, config, store.load)
        await engine.start()
        if config.own_machine:
            await engine.declare_slots(config.gpus)  # before the first request, which may list the machines
        _start_upkeep(config, store, committer, clock, engine)
        yield engine
        await engine.stop()
    finally:
        store.close()


def _engine(
    config: Config,
    store: MemoryStore | SqlStore,
    committer: Committer,
    book: WatchedBook,
    clock: SystemClock,
    executors: Executors,
) -> Engine:
    engine = Engine(
        committer=committer,
        record=store,
        executor=Router(executors.by_name),
        files=FileRouter({"local": executors.local, "ssh": executors.ssh}),
        checkpoints=executors.ssh,
        book=book,
        clock=clock,
        kept_here=Leftovers(runs_dir=config.runs_dir, job_dirs=job_dirs(config)).kept,
        settings=_settings(config),
        checkpoint_dir_of=partial(checkpoint_dir, config),
        declare=partial(_declare, config.home, executors.local) if config.own_machine else None,
        machines=executors.ssh,
        leases=executors.leases,
        collect=lambda record: collect_outputs(config, engine, record),
        findings=executors.findings,
    )
    return engine


def _start_upkeep(
    config: Config, store: MemoryStore | SqlStore, committer: Committer, clock: SystemClock, engine: Engine
) -> None:
    """What a daemon does beside scheduling. The supervisor restarts each of these tasks if it fails."""
    start = engine.tasks.start
    if config.on_server:
        start("signs of life", lambda: standing_by.give_signs(config, store.epoch, committer.doubt))
    start("clock", clock.keep)
    start("compaction", compaction(store, clock, keep_days=config.events_keep_days).run)
    remove = partial(engine.remove, by="jobs_keep_days")
    start("retention", retention(store, remove, clock, keep_days=config.jobs_keep_days).run)
    start("sweep", lambda: sweep_snapshots(config, engine, clock))


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


async def _declare(home: Path, hosts: LocalExecutor, gpus: int | None) -> Node:
    """Kept before it holds: a daemon that is killed in between comes back with what was asked for."""
    await asyncio.to_thread(keep_slots, home, gpus)
    return await hosts.declare(gpus)


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
        job_dirs=tuple(f"{config.shared_dir.name}/{path.name}" for path in job_dirs(config)),
    )
