"""Leases, store epochs and stamps, as a machine's agent keeps them."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contract.transport_benches import CLUSTER, Process, _ended, greeting, no_upstream, over_pipe
from swell.core.ids import RunId
from swell.executors.ssh.bundle import archive_of
from swell.executors.ssh.transport import Late, SshTransport

RUN = RunId(7, 1)
Scene = Callable[[SshTransport], Awaitable[None]]


def play(home: Path, scene: Scene) -> None:
    async def whole() -> None:
        begun: list[Process] = []
        transport = SshTransport(greeting(home), over_pipe(begun), no_upstream)
        try:
            await scene(transport)
        finally:
            transport.close()
            await _ended(begun)

    asyncio.run(whole())


def stay() -> list[dict[str, Any]]:
    request = {"run": str(RUN), "rank": 0, "argv": ["sleep", "100"], "env": {"PATH": "/usr/bin:/bin"}, "cwd": "/"}
    return [{**request, "grace_s": 0.5, "secrets": []}]


async def stage(transport: SshTransport, *wanted: str) -> dict[str, Any]:
    give_up_s = time.monotonic() + 60.0
    while time.monotonic() < give_up_s:
        worker: dict[str, Any] = (await transport.look({RUN: [0]})).runs[RUN]["workers"][0]
        if worker["stage"] in wanted:
            return worker
        await asyncio.sleep(0.05)
    raise AssertionError(f"never {wanted}: {worker}")


def test_a_run_ends_by_itself_when_its_lease_is_over_and_a_delayed_renewal_extends_nothing(tmp_path: Path) -> None:
    async def scene(transport: SshTransport) -> None:
        look = await transport.look({})
        until_s = look.boot_s + 8.0
        await transport.renew(look.boot_id, until_s)
        await transport.start(RUN, stay())
        await stage(transport, "up", "ended")
        while (now := await transport.look({})).boot_s < until_s - 0.5:
            await asyncio.sleep(0.1)
        await transport.renew(now.boot_id, until_s)  # sent when it was looked at first, arrived only now
        ended = await stage(transport, "ended")
        assert ended["exit"]["asked"] == "lease"
        assert until_s <= ended["exit"]["boot_s"]

    play(tmp_path, scene)


def test_a_waived_lease_never_ends(tmp_path: Path) -> None:
    async def scene(transport: SshTransport) -> None:
        look = await transport.look({})
        await transport.renew(look.boot_id, look.boot_s + 8.0)
        await transport.start(RUN, stay())
        await stage(transport, "up")
        await transport.renew(look.boot_id, None)
        while (await transport.look({})).boot_s < look.boot_s + 10.0:
            await asyncio.sleep(0.2)
        await stage(transport, "up")
        await transport.stop(RUN, [0], kill=True, whole=True)
        await stage(transport, "ended")

    play(tmp_path, scene)


@pytest.mark.parametrize("how", ["late", "another boot"])
def test_a_request_to_start_that_is_late_starts_nothing(tmp_path: Path, how: str) -> None:
    async def scene(transport: SshTransport) -> None:
        look = await transport.look({})
        await transport.renew(look.boot_id, look.boot_s + 600.0)
        boot_id = look.boot_id if how == "late" else "another"
        transport._lease = {"boot": boot_id, "until": look.boot_s - 0.1 if how == "late" else look.boot_s + 600.0}
        with pytest.raises(Late):
            await transport.start(RUN, stay())
        await stage(transport, "absent")

    play(tmp_path, scene)


@pytest.mark.parametrize("boot", ["", "before"])
def test_a_launch_that_took_longer_than_the_lease_it_began_under_starts_nothing(tmp_path: Path, boot: str) -> None:
    """Its machine was given up meanwhile, and the job runs elsewhere: a lease of later is not for this run."""

    async def scene(transport: SshTransport) -> None:
        look = await transport.look({})
        transport._lease = {"boot": boot or look.boot_id, "until": look.boot_s + (60.0 if boot else -1.0)}
        transport.promise(RUN)
        await transport.renew(look.boot_id, look.boot_s + 60.0)
        with pytest.raises(Late):
            await transport.start(RUN, stay())
        assert (await transport.look({RUN: [0]})).running == {}
        transport.promise(RUN)  # ordered again
        await transport.start(RUN, stay())
        await stage(transport, "up")

    play(tmp_path, scene)


def test_a_renewal_for_another_boot_is_refused(tmp_path: Path) -> None:
    async def scene(transport: SshTransport) -> None:
        with pytest.raises(Late):
            await transport.renew("another", 1e9)

    play(tmp_path, scene)


def test_a_machine_obeys_the_newest_daemon_only(tmp_path: Path) -> None:
    async def scene(old: SshTransport) -> None:
        look = await old.look({})
        await old.renew(look.boot_id, look.boot_s + 600.0)
        begun: list[Process] = []
        new = SshTransport(greeting(tmp_path, epoch=2), over_pipe(begun), no_upstream)
        try:
            await new.look({})
            with pytest.raises(OSError, match=r"newer daemon|lost|closed|0 bytes read"):
                await old.start(RUN, stay())
            await asyncio.sleep(1.0)  # when it may connect again
            with pytest.raises(OSError, match="newer daemon"):
                await old.look({})
            assert (await new.look({RUN: [0]})).runs[RUN]["workers"][0]["stage"] == "absent"
        finally:
            new.close()
            await _ended(begun)

    play(tmp_path, scene)


def test_files_of_another_job_of_the_same_id_are_set_aside_and_kept(tmp_path: Path) -> None:
    async def scene(transport: SshTransport) -> None:
        stamp, library = {"cluster": CLUSTER, "job": 7, "submitted_s": 1.0}, archive_of({"swell/__init__.py": b""})
        made = partial(transport.prepare, 7, files="", library=library.name)
        assert (await made(stamp)).need == (library.name,)
        await transport.bring(library.name, io.BytesIO(library.data))
        found = await made(stamp)
        assert found.need == ()
        assert (Path(found.library) / "swell" / "__init__.py").exists()
        note = tmp_path / "far" / CLUSTER / "checkpoints" / "7" / "weights"
        note.write_text("old")
        await made(stamp)
        assert note.exists()
        await made({**stamp, "submitted_s": 2.0})
        assert not note.exists()
        assert [path.read_text() for path in (tmp_path / "far" / CLUSTER / "foreign").rglob("weights")] == ["old"]

    play(tmp_path, scene)
