"""Every way to reach a machine, for the suite of transports and that of executors: in this process, through an agent
over a pipe, through an agent over SSH."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh

from swell.core.resources import Ssh
from swell.executors.ssh.connection import fetch_host_key
from swell.executors.ssh.link import Greeting, Pipe, Streams
from swell.executors.ssh.transport import Dial, SshTransport, over_ssh
from swell.executors.transport import LocalTransport, Transport

CLUSTER = "c1"
Process = asyncio.subprocess.Process


async def no_upstream() -> Streams:
    raise OSError("no daemon listens")


def greeting(home: Path, epoch: int = 1) -> Greeting:
    return Greeting(root=str(home / "far"), cluster_id=CLUSTER, epoch=epoch)


def over_pipe(begun: list[Process], python: str = sys.executable) -> Dial:
    """The agent as a child of this process; `begun` takes each that was started."""

    async def dial() -> Pipe:
        program = "import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(python, "-ISs", "-c", program), stdin=pipe, stdout=pipe, stderr=pipe
        )
        begun.append(process)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        stderr = process.stderr

        def close() -> None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            if (started := process._transport._proc) is not None:  # type: ignore[attr-defined]
                started.wait()
            process._transport.close()  # type: ignore[attr-defined]

        async def why() -> str:
            return (await stderr.read(2000)).decode()

        return Pipe(reader=process.stdout, writer=process.stdin, close=close, why=why)

    return dial


@asynccontextmanager
async def sshd(tmp_path: Path) -> AsyncIterator[Ssh]:
    """A server of SSH in this process, which runs commands as real processes."""
    key, host_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    key.write_private_key(tmp_path / "id")
    key.write_public_key(tmp_path / "authorized")

    begun: list[Process] = []

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        assert process.command
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_shell(process.command, stdin=pipe, stdout=pipe, cwd="/")
        begun.append(child)
        assert child.stdin
        assert child.stdout
        there = asyncio.create_task(_pump(process.stdin, child.stdin))
        await _pump(child.stdout, process.stdout)
        there.cancel()
        process.exit(await child.wait())

    listening = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[host_key],
        authorized_client_keys=str(tmp_path / "authorized"),
        process_factory=run,
        encoding=None,
    )
    async with listening:
        ssh = Ssh(
            host="127.0.0.1",
            port=listening.get_port(),
            user="ada",
            key_file=str(tmp_path / "id"),
            python=sys.executable,
        )
        yield Ssh(
            host=ssh.host,
            port=ssh.port,
            user=ssh.user,
            key_file=ssh.key_file,
            python=ssh.python,
            host_key=await fetch_host_key(ssh),
        )
        await _ended(begun)


async def _pump(source: Any, target: Any) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    with contextlib.suppress(OSError):
        target.close()


async def _ended(begun: list[Process]) -> None:
    for process in begun:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]
    await asyncio.sleep(0.02)  # whatever is closed now is closed before its loop is


@asynccontextmanager
async def local(home: Path) -> AsyncIterator[Transport]:
    yield LocalTransport(home / "runs", [home / "work"])


@asynccontextmanager
async def piped(home: Path) -> AsyncIterator[Transport]:
    begun: list[Process] = []
    yield SshTransport(greeting(home), over_pipe(begun), no_upstream)
    await _ended(begun)


@asynccontextmanager
async def over_network(home: Path) -> AsyncIterator[Transport]:
    async with sshd(home) as ssh:
        yield SshTransport(greeting(home), over_ssh(ssh), no_upstream)


WAYS: dict[str, Callable[[Path], AbstractAsyncContextManager[Transport]]] = {
    "local": local,
    "pipe": piped,
    "ssh": over_network,
}
