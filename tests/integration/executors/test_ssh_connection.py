"""Connections over SSH, against a server in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from swell.core.resources import Ssh
from swell.executors.ssh.connection import Refusal, connect, fetch_host_key
from swell.executors.transport import Unreachable


def forwards(process: asyncssh.SSHServerProcess[str]) -> None:
    """The program that every command runs: its exit code says whether keys are within reach."""
    process.exit(1 if process.channel.get_agent_path() else 0)


@asynccontextmanager
async def server(tmp_path: Path) -> AsyncIterator[Ssh]:
    """How to reach a server that knows one user, without its host key."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(tmp_path / "id")
    key.write_public_key(tmp_path / "authorized")
    host_keys = [asyncssh.generate_private_key("ssh-ed25519")]
    listening = await asyncssh.listen(
        *("127.0.0.1", 0),
        server_host_keys=host_keys,
        authorized_client_keys=str(tmp_path / "authorized"),
        process_factory=forwards,
    )
    async with listening:
        yield Ssh(host="127.0.0.1", port=listening.get_port(), user="ada", key_file=str(tmp_path / "id"))


def test_connects_to_the_pinned_key_and_to_no_other(tmp_path: Path) -> None:
    async def scene() -> None:
        async with server(tmp_path) as ssh:
            pinned = replace(ssh, host_key=await fetch_host_key(ssh))
            async with await connect(pinned, timeout_s=10.0):
                pass
            other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
            with pytest.raises(Refusal, match="another host key"):
                await connect(replace(pinned, host_key=other), timeout_s=10.0)
            with pytest.raises(Refusal, match="no host key is pinned"):
                await connect(ssh, timeout_s=10.0)

    asyncio.run(scene())


def test_no_machine_is_handed_the_keys_of_whoever_runs_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is forwarded lets a machine log in elsewhere as us."""
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))

    forwarded: list[int | None] = []

    async def scene() -> None:
        async with server(tmp_path) as ssh:
            pinned = replace(ssh, host_key=await fetch_host_key(ssh))
            async with await connect(pinned, timeout_s=10.0) as connection:
                forwarded.append((await connection.run("forwards")).exit_status)

    asyncio.run(scene())
    assert forwarded == [0]


def test_who_is_not_let_in_is_refused_and_who_is_not_answered_cannot_tell(tmp_path: Path) -> None:
    async def scene() -> None:
        async with server(tmp_path) as ssh:
            pinned = replace(ssh, host_key=await fetch_host_key(ssh))
            stranger = asyncssh.generate_private_key("ssh-ed25519")
            stranger.write_private_key(tmp_path / "other")
            with pytest.raises(Refusal, match="lets nobody in as ada"):
                await connect(replace(pinned, key_file=str(tmp_path / "other")), timeout_s=10.0)
            with pytest.raises(Refusal, match="there is no key"):
                await connect(replace(pinned, key_file=str(tmp_path / "none")), timeout_s=10.0)
        with pytest.raises(Unreachable):  # it has gone
            await connect(pinned, timeout_s=10.0)

    asyncio.run(scene())


def test_a_machine_that_takes_the_connection_and_says_nothing_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        ssh = Ssh(host="127.0.0.1", port=deaf.getsockname()[1], host_key=_some_key())
        with pytest.raises(Unreachable):
            asyncio.run(connect(ssh, timeout_s=0.5))


def _some_key() -> str:
    return asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
