"""One suite for every way to reach a machine: the same calls, the same answers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contract.transport_benches import WAYS
from swell.core.ids import RunId
from swell.executors.transport import LocalTransport, Transport, Unreachable

RUN = RunId(7, 1)
HOSTILE = ("$(touch pwned)", "`id`", "a b\n c", "'\"", "; rm -rf /", "--", "\\", "ünï\u2028code", "*", "$HOME", "|&<>")


@pytest.fixture(params=sorted(WAYS))
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Callable[[Transport], Awaitable[None]]], None]:
    """Plays a scene with a transport that may start runs, and ends whatever it left."""

    def run(scene: Callable[[Transport], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with WAYS[request.param](tmp_path) as transport:
                transport.listen(lambda run: None)
                look = await transport.look({})
                await transport.renew(look.boot_id, look.boot_s + 600.0)
                try:
                    await scene(transport)
                finally:
                    await transport.stop(RUN, [0, 1], kill=True, whole=True)
                    transport.close()

        asyncio.run(whole())

    return run


def request(*argv: str, rank: int = 0, env: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "run": str(RUN),
        "rank": rank,
        "argv": list(argv),
        "env": {"PATH": "/usr/bin:/bin", **(env or {})},
        "cwd": "/",
        "grace_s": 1.0,
        "secrets": [],
    }


async def stage(transport: Transport, wanted: str, rank: int = 0) -> dict[str, Any]:
    give_up_s = time.monotonic() + 30.0
    while time.monotonic() < give_up_s:
        worker: dict[str, Any] = (await transport.look({RUN: [rank]})).runs[RUN]["workers"][0]
        if worker["stage"] == wanted:
            return worker
        await asyncio.sleep(0.02)
    raise AssertionError(f"never {wanted}; {worker}")


def test_a_worker_runs_writes_its_log_and_ends_with_its_code(play: Any) -> None:
    async def scene(transport: Transport) -> None:
        assert (await stage(transport, "absent"))["exit"] is None
        await transport.start(RUN, [request("sh", "-c", "echo one; exit 3")])
        assert (await stage(transport, "ended"))["exit"]["code"] == 3
        chunk = await transport.read_log(RUN, 0, 0, 1000)
        assert (chunk.data, chunk.end) == (b"one\n", True)
        assert (await transport.read_log(RUN, 0, 2, 1)).data == b"e"

    play(scene)


def test_starting_twice_runs_once(play: Any) -> None:
    async def scene(transport: Transport) -> None:
        for _ in range(2):
            await transport.start(RUN, [request("sh", "-c", "echo here; exec sleep 100")])
        await stage(transport, "up")
        await transport.start(RUN, [request("sh", "-c", "echo here; exec sleep 100")])
        await transport.stop(RUN, [0], kill=True, whole=True)
        await stage(transport, "ended")
        assert (await transport.read_log(RUN, 0, 0, 1000)).data == b"here\n"

    play(scene)


def test_what_was_stopped_before_it_started_never_starts(play: Any) -> None:
    async def scene(transport: Transport) -> None:
        await transport.put(RUN, "note", b"x")  # there is something of the run there
        await transport.stop(RUN, [0], kill=False, whole=True)
        await transport.start(RUN, [request("sh", "-c", "echo here")])
        assert (await stage(transport, "ended"))["exit"]["failed"]["step"] == "stopped"
        assert (await transport.read_log(RUN, 0, 0, 1000)).data == b""

    play(scene)


def test_files_come_back_as_they_were_put(play: Any) -> None:
    async def scene(transport: Transport) -> None:
        data = bytes(range(256)) * 5000
        await transport.put(RUN, "blob", data)
        assert await transport.get(RUN, "blob") == data
        assert await transport.get(RUN, "none") is None

    play(scene)


def test_hostile_strings_arrive_intact_and_execute_nothing(play: Any, tmp_path: Path) -> None:
    async def scene(transport: Transport) -> None:
        show = "import os,sys; print(ascii([sys.argv[1:], os.environ['ODD']]))"
        odd = "".join(HOSTILE)
        await transport.start(RUN, [request(sys.executable, "-c", show, *HOSTILE, env={"ODD": odd})])
        await stage(transport, "ended")
        said = (await transport.read_log(RUN, 0, 0, 100_000)).data.decode()
        assert said.strip() == ascii([list(HOSTILE), odd])
        assert not list(tmp_path.rglob("pwned"))

    play(scene)


def test_a_removed_job_leaves_nothing(play: Any) -> None:
    async def scene(transport: Transport) -> None:
        await transport.start(RUN, [request("true")])
        await stage(transport, "ended")
        assert list(await transport.kept()) == [RUN.job]
        await transport.remove(RUN.job)
        assert list(await transport.kept()) == []
        await transport.remove(RUN.job)

    play(scene)


def test_a_refusal_is_an_error_of_the_system_with_its_number(play: Any) -> None:
    async def scene(transport: Transport) -> None:
        with pytest.raises(OSError) as refused:
            await transport.put(RUN, "x" * 300, b"")
        assert refused.value.errno == 36

    play(scene)


def test_hints_arrive(play: Any) -> None:
    async def scene(transport: Transport) -> None:
        heard: list[RunId] = []
        transport.close()
        transport.listen(heard.append)
        look = await transport.look({})  # it is connected by now
        await transport.renew(look.boot_id, look.boot_s + 600.0)
        await transport.start(RUN, [request("true")])
        await stage(transport, "ended")
        give_up_s = time.monotonic() + 10.0
        while not heard and time.monotonic() < give_up_s:
            await asyncio.sleep(0.02)
        assert set(heard) == {RUN}

    play(scene)


def test_files_of_a_working_copy_are_listed_and_read_by_offset(play: Any, tmp_path: Path) -> None:
    async def scene(transport: Transport) -> None:
        own = (tmp_path / "work" if isinstance(transport, LocalTransport) else tmp_path / "far/c1/work") / "7"
        (own / "sub").mkdir(parents=True)
        (own / "sub" / "a\nb").write_bytes(bytes(range(256)) * 8192)
        (own / "link").symlink_to("/etc/passwd")
        tree = await transport.tree(7, "")
        assert [(file.path, file.size) for file in tree.files] == [("sub/a\nb", 2 * 1024 * 1024)]
        piece = await transport.read(7, "sub", "a\nb", 255, 3)
        assert (piece.data, piece.size) == (b"\xff\0\1", 2 * 1024 * 1024)
        assert len((await transport.read(7, "sub", "a\nb", 0, 10**9)).data) == 1024 * 1024
        for path in ("link", "../8/x", "/etc/passwd", "missing"):
            with pytest.raises(OSError) as refused:
                await transport.read(7, "", path, 0, 100)
            assert not isinstance(refused.value, Unreachable)

    play(scene)
