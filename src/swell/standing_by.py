"""The time before a daemon has its database: another one does, and this one waits for its turn. Called by `serve`.

Meanwhile it answers that it is a standby and where the active daemon is. Daemons of one database share a directory
(`shared`) with what jobs and successors need; the address of the active one is in it, in `active.json`."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from swell import listening
from swell.api.standby import Standby
from swell.config import Config
from swell.core.errors import Conflict, StoreError, StoreFenced
from swell.core.state import State
from swell.home import open_private, token_of, write_private
from swell.store.postgres import PostgresDatabase
from swell.store.sql import SqlStore
from swell.store.succession import PATIENCE_S, Signs, Succession

log = logging.getLogger(__name__)

LOOK_S = 0.25
SIGN_S = 1.0
SETUP_LOCK = "setup.lock"


@contextmanager
def setting_up(config: Config) -> Iterator[None]:
    """One at a time: two daemons that start together make one token and one certificate. A home has one daemon."""
    if not config.shared:
        yield
        return
    fd = open_private(config.shared_dir / SETUP_LOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def shared_secret(config: Config) -> str:
    """The token of all daemons of this database, with a copy in each home for the command line there."""
    secret = token_of(config.token_file)
    if config.shared_dir != config.home:
        write_private(config.home / config.token_file.name, secret)
    return secret


def active_in(config: Config) -> Mapping[str, str]:
    """What the active daemon wrote down last; nothing if none did."""
    try:
        found = json.loads(config.active_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def url_of_active(config: Config) -> str:
    found = active_in(config)
    return found.get("public_url") or found.get("url", "")


async def turn(config: Config, doors: listening.Doors, holder: str, left: asyncio.Event) -> SqlStore | None:
    """The store, once it is ours; None if we are to leave before that."""
    succession = Succession(PostgresDatabase(config.database), holder)
    leaving = asyncio.create_task(left.wait())
    try:
        async with listening.answering(Standby(lambda: url_of_active(config)), doors):
            while not leaving.done():
                store = await _look(succession)
                if store is not None:
                    return store
                await asyncio.wait({leaving}, timeout=LOOK_S)
        return None
    finally:
        leaving.cancel()
        await asyncio.to_thread(succession.close)


async def _look(succession: Succession) -> SqlStore | None:
    try:
        return await asyncio.to_thread(succession.look)
    except StoreError as error:
        log.warning("standing by: %s", error)
        await asyncio.sleep(SIGN_S)
        return None


async def give_signs(config: Config, epoch: int, doubt: Callable[[StoreError], None]) -> None:
    """Until cancelled. Raises StoreFenced when another daemon has the database. `doubt` hears why none could be given
    for so long that another one may have taken it: also a daemon that has nothing to write must not seem to be well."""
    signs = Signs(PostgresDatabase(config.database), epoch)
    given_s = time.monotonic()
    try:
        while True:
            try:
                await asyncio.to_thread(signs.give)
                given_s = time.monotonic()
            except StoreFenced:
                raise
            except StoreError as error:
                log.warning("no sign of life could be given: %s", error)
                if time.monotonic() - given_s >= PATIENCE_S:
                    doubt(error)
            await asyncio.sleep(SIGN_S)
    finally:
        await asyncio.to_thread(signs.close)


def check_machine(config: Config, load: Callable[[], State]) -> None:
    """What runs on the own machine of the daemon before us can be seen there only: it must neither be taken for dead
    nor started again here."""
    before, here = active_in(config).get("machine", ""), socket.gethostname()
    if not before or before == here:
        return
    state = load()
    held = [
        job
        for job in state.active
        if (allocation := state.jobs[job].allocation) is not None
        and any(name in state.nodes and state.nodes[name].executor == "local" for name in allocation.nodes)
    ]
    if held:
        some = ", ".join(map(str, held[:5])) + (" and more" if len(held) > 5 else "")
        raise Conflict(
            f"jobs {some} run on {before} itself, which only a daemon there can see, and this is {here}. Start the "
            f"daemon on {before} again; or, if that machine is off and stays off, delete {config.active_file} and "
            "start this one again. With `own_machine: false` and machines over SSH, any machine can take over"
        )
