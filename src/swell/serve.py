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
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from swell import __version__
from swell.api.app import create_app
from swell.api.auth import run_token
from swell.api.connections import BoundedProtocol
from swell.config import Config
from swell.core.errors import Conflict, StoreError, StoreFenced
from swell.core.resources import Node
from swell.core.state import JobRecord
from swell.daemon.clock import SystemClock
from swell.daemon.committer import Committer
from swell.daemon.engine import Engine, Settings
from swell.daemon.passes import Timing
from swell.executors.hosts import HostExecutor, local_executor
from swell.executors.inventory import Machine
from swell.executors.leftovers import Leftovers
from swell.executors.preparation import LocalPreparation
from swell.executors.router import Router
from swell.home import (
    LOCK_NAME,
    LOG_NAME,
    PORT_NAME,
    check_state_files,
    keep_slots,
    make_directory,
    open_private,
    token_of,
    write_private,
)
from swell.jobfile import files
from swell.placement.interference import WatchedBook
from swell.plan.deadlines import Patience
from swell.policy.custom import load_policy_files
from swell.sdk import ship
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore
from swell.store.open import open_store
from swell.store.sql import SqlStore

log = logging.getLogger(__name__)

SWEEP_S = 3600.0
STOP_GRACE_S = 2
"""Open streams are given so long at a graceful stop."""


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
    for path in (config.home, config.runs_dir, config.files_dir, config.checkpoints_dir, config.work_dir):
        make_directory(path)
    check_state_files(config.home)


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
                "use it, or stop it with `swell down`"
            ) from None

    def __exit__(self, *_: object) -> None:
        self._config.address_file.unlink(missing_ok=True)
        os.close(self._fd)


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
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


class Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would end the process by them before the engine has come to its own end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def leave(self) -> None:
        self.should_exit = True


async def _serve(config: Config) -> None:
    listener = _listen(config)
    url = _url(config.reached_by, listener.getsockname()[1])
    secret = token_of(config.token_file)
    lost: list[StoreFenced] = []
    async with running_engine(config, url, secret) as engine:
        app = create_app(engine, secret, config, metrics_token=token_of(config.metrics_token_file))
        engine.watch(app.state.metrics.happened, app.state.metrics.passed)
        server = Server(_uvicorn_config(app))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.leave)
        told = {"url": url, "pid": os.getpid(), "version": __version__, "warning": _warning(config)}
        write_private(config.address_file, json.dumps(told))
        log.info("swell %s serves %s from %s", __version__, url, config.home)
        if told["warning"]:
            log.warning(told["warning"])
            print(f"swell: warning: {told['warning']}", file=sys.stderr, flush=True)
        watching = asyncio.create_task(_leave_when_lost(engine, server, lost))
        await server.serve(sockets=[listener])
        watching.cancel()
    if lost:
        raise lost[0]


async def _leave_when_lost(engine: Engine, server: Server, lost: list[StoreFenced]) -> None:
    """Another daemon has the database: this one must not go on answering as if it decided anything."""
    lost.append(await engine.tasks.lost())
    log.error("this daemon ends, jobs go on: %s", lost[0])
    server.leave()


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # a peer is who it is: wrong tokens are counted by address
        timeout_graceful_shutdown=STOP_GRACE_S,
    )


def _warning(config: Config) -> str:
    if not config.exposed:
        return ""
    return (
        f"listening on {config.host}: other machines can connect, and tokens, code and logs travel unencrypted; "
        "whoever can read that network can run commands here"
    )


def _listen(config: Config) -> socket.socket:
    # By its protocol asyncio knows TCP, where answers go out at once; without, each would wait 40 ms for the client.
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # readers of streams that are gone without a word
    try:
        listener.bind((config.host, config.port or _last_port(config)))
    except OSError:
        if config.port:
            raise
        listener.bind((config.host, 0))
    listener.listen(2048)
    write_private(config.home / PORT_NAME, str(listener.getsockname()[1]))
    return listener


def _last_port(config: Config) -> int:
    """The port of before a restart, so that running trainings find the daemon again where they left it."""
    try:
        return int((config.home / PORT_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


def _opened(url: str) -> MemoryStore | SqlStore:
    """Once it runs, outages heal by themselves; a start without its database is refused, and says so."""
    try:
        return open_store(url)
    except StoreError as error:
        what = str(error).removesuffix("it is tried again.").removesuffix("it continues by itself.").rstrip("; .")
        raise type(error)(f"the daemon did not start: {what}. Once that is mended, start it again.") from error


@asynccontextmanager
async def running_engine(config: Config, url: str, secret: str) -> AsyncIterator[Engine]:
    store = _opened(config.database_url)
    book = WatchedBook(Book())
    clock = SystemClock(config.home / "clock.json")
    prepare = LocalPreparation(
        url=url,
        token_of=partial(run_token, secret),
        deliver=partial(files.copy_for_job, config.files_dir),
        runs_dir=config.runs_dir,
        checkpoints_dir=config.checkpoints_dir,
        work_dir=config.work_dir,
        sdk_dir=ship.ship(config.home / "sdk"),
    )
    machine, dirs = Machine(clock, gpus=config.gpus), _job_dirs(config)
    hosts = local_executor(config.runs_dir, clock, prepare, job_dirs=dirs, machine=machine)
    engine = Engine(
        committer=Committer(store, Journal(store), book),
        record=store,
        executor=Router({"local": hosts}),
        book=book,
        clock=clock,
        kept_here=Leftovers(runs_dir=config.runs_dir, job_dirs=dirs).kept,
        settings=_settings(config),
        checkpoint_dir_of=lambda record: _checkpoint_dir(config, record),
        declare=partial(_declare, config.home, hosts),
    )
    try:
        await engine.start()
        await engine.declare_slots(config.gpus)  # whoever asks first sees this machine as it is
        engine.tasks.start("clock", clock.keep)
        engine.tasks.start("sweep", lambda: _sweep(config, engine, clock))
        yield engine
        await engine.stop()
    finally:
        store.close()


async def _declare(home: Path, hosts: HostExecutor, gpus: int | None) -> Node:
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


def _checkpoint_dir(config: Config, record: JobRecord) -> Path:
    """Where a script without the library saves: in SWELL_CHECKPOINT_DIR if it uses that, else in the directory that
    its user named."""
    named = config.work_dir / str(record.id) / record.spec.workdir / record.spec.checkpoint_dir
    own = named / str(record.id)
    return own if own.is_dir() and any(own.iterdir()) else named


def _settings(config: Config) -> Settings:
    patience = Patience(gang_timeout_s=config.gang_timeout_s, preempt_wait_s=config.preempt_wait_s)
    timing = Timing(interval_s=config.pass_interval_s, coalesce_s=config.coalesce_s, patience=patience)
    return Settings(
        policy=config.policy,
        placer=config.placer,
        options=config.options,
        timing=timing,
        id_file=config.home / "last-job",
        # With the name of the home, so that `~/.swell/work` and `$HOME/.swell/work` are found in a command as well.
        job_dirs=tuple(f"{config.home.name}/{path.name}" for path in _job_dirs(config)),
    )


def _job_dirs(config: Config) -> tuple[Path, ...]:
    return config.work_dir, config.checkpoints_dir
