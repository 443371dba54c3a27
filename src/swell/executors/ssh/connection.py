"""Connections to machines over SSH: authentication, trusted host keys, time-outs.

Needs the extra `ssh` (asyncssh), which is imported for the first connection. No agent forwarding, no shell: the daemon
runs one fixed command and communicates with it. `swell port-forward` makes a connection of its own.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swell.core.resources import Ssh
from swell.executors.transport import Unreachable

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection

KEEPALIVE_S, KEEPALIVES = 5.0, 3
"""A connection is given up after this many keepalives without an answer."""
CONNECT_S = 10.0


class Refusal(OSError):
    """The machine answered and refused the login: the message says why and what to do."""


async def connect(ssh: Ssh, *, timeout_s: float = CONNECT_S) -> SSHClientConnection:
    """Raises `Unreachable` if the machine does not answer, `Refusal` if it refuses or its host key has changed."""
    asyncssh = _asyncssh()
    trusted = _pinned(asyncssh, ssh)
    keep = {"keepalive_interval": KEEPALIVE_S, "keepalive_count_max": KEEPALIVES}
    try:
        async with asyncio.timeout(timeout_s):
            connection: SSHClientConnection = await asyncssh.connect(
                **_where(ssh), **_who(ssh), **keep, known_hosts=trusted, agent_forwarding=False, login_timeout=timeout_s
            )
            return connection
    except (TimeoutError, asyncssh.Error, ValueError, OSError) as error:  # keys and configuration: ValueError
        raise told_apart(ssh, error) from error


async def fetch_host_key(ssh: Ssh) -> str:
    """The host key of the machine, to be pinned: one line of OpenSSH's format without a comment."""
    asyncssh = _asyncssh()
    try:
        async with asyncio.timeout(CONNECT_S):
            key = await asyncssh.get_server_host_key(**_where(ssh))
    except (TimeoutError, asyncssh.Error, ValueError, OSError) as error:  # keys and configuration: ValueError
        raise told_apart(ssh, error) from error
    if key is None:
        raise Refusal(f"{ssh.host} presents no host key")
    return " ".join(key.export_public_key("openssh").decode().split()[:2])


def told_apart(ssh: Ssh, error: Exception) -> OSError:
    """The error as `Refusal` or `Unreachable`."""
    asyncssh, where = _asyncssh(), f"{ssh.host}:{ssh.port}"
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return Refusal(
            f"{where} presents another host key than the one pinned for it: it was set up anew, or somebody is in "
            "between"
        )
    if isinstance(error, asyncssh.PermissionDenied):
        who = f"as {ssh.user} " if ssh.user else ""
        return Refusal(f"{where} lets nobody in {who}with the keys there are; see that `ssh {ssh.host}` works")
    if isinstance(error, asyncssh.KeyImportError | asyncssh.KeyEncryptionError | PermissionError):
        return Refusal(f"the key {ssh.key_file} cannot be used: {error}")
    if isinstance(error, asyncssh.ConfigParseError):
        return Refusal(f"~/.ssh/config cannot be read: {error}")
    if isinstance(error, FileNotFoundError):
        return Refusal(f"there is no key {ssh.key_file}")
    if isinstance(error, asyncssh.ProtocolError | asyncssh.KeyExchangeFailed):
        return Refusal(f"{where} speaks no SSH that we know: {error}")
    if isinstance(error, socket.gaierror):
        return Unreachable(f"there is no address for {ssh.host} ({error.strerror})")
    return Unreachable(f"{where} does not answer ({error or type(error).__name__})")


def _asyncssh() -> Any:
    try:
        import asyncssh
    except ImportError as error:
        raise Refusal("machines over SSH need the extra `ssh`: pip install 'swell[ssh]'") from error
    return asyncssh


def _where(ssh: Ssh) -> dict[str, Any]:
    """With an alias, ~/.ssh/config determines the route (HostName, Port, ProxyJump), and its known hosts apply to the
    jumps; without one, only the declaration counts."""
    if ssh.config_host:
        there = {"port": ssh.port} if ssh.port != 22 else {}
        return {"host": ssh.config_host, "config": [str(Path("~/.ssh/config").expanduser())], **there}
    return {"host": ssh.host, "port": ssh.port, "config": None}


def _who(ssh: Ssh) -> dict[str, Any]:
    who: dict[str, Any] = {"username": ssh.user} if ssh.user else {}
    return {**who, "client_keys": [ssh.key_file]} if ssh.key_file else who


def _pinned(asyncssh: Any, ssh: Ssh) -> Any:
    """Trusts only this key, for any name or address."""
    if not ssh.host_key:
        raise Refusal(f"no host key is pinned for {ssh.host}; add the machine with `swell node add`, which pins it")
    try:
        key = asyncssh.import_public_key(ssh.host_key)
    except asyncssh.KeyImportError as error:
        raise Refusal(f"the host key pinned for {ssh.host} cannot be read: {error}") from error
    return [key], [], []
