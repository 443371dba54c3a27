"""`swell port-forward JOB PORT`: a port of a running job, on this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from swell.cli import completion
from swell.cli.common import client, connected, print_json
from swell.cli.numbers import PORT, Count
from swell.cli.terminal import safe, say
from swell.client.http import Client
from swell.core.errors import SwellError

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection

LOOPBACK = "127.0.0.1"
CHECK_S = 2.0
CHUNK = 65536


class ForwardError(SwellError):
    """The port cannot be had; the message says why and what to do."""


@click.command("port-forward")
@click.argument("job", type=completion.JOB)
@click.argument("port", type=Count(1, 65535))
@click.option("--local", type=PORT, default=None, help="Port here.  [default: the same, or a free one]")
@connected
def port_forward(home: Path | None, as_json: bool, job: str, port: int, local: int | None) -> None:
    """Make PORT of JOB reachable on this machine until it ends, or Ctrl-C.

    PORT is the one that the job listens on. With several workers it is that of rank 0.
    """
    found = client(home)
    view = found.job(job)
    node = node_of(found, view)
    asyncio.run(_forward(found, int(view["id"]), node, port, local, as_json))


def node_of(found: Client, view: dict[str, Any]) -> dict[str, Any]:
    """Where its first worker runs."""
    if view["state"] != "running" or not view["where"]:
        raise ForwardError(f"job {view['id']} is not running ({view['state']}), so nothing listens on its ports yet")
    name = str(view["where"][0]).partition(":")[0]
    nodes = {node["name"]: node for node in found.get("/v1/nodes")["nodes"]}
    return dict(nodes.get(name) or {"name": name, "address": LOOPBACK, "ssh": None})


async def _forward(found: Client, job: int, node: dict[str, Any], port: int, local: int | None, as_json: bool) -> None:
    async with _way(found, node, port) as way:
        await _reach(job, way)
        server = await _listen(way, local)
        here = server.sockets[0].getsockname()[1]
        if as_json:
            print_json({"job": job, "local": here, "host": way.host, "port": port})
        else:
            say(f"http://{LOOPBACK}:{here} is port {port} of job {job} on {safe(way.host)}; Ctrl-C ends this")
        async with server:
            while (await asyncio.to_thread(found.job, str(job)))["state"] in ("running", "stopping"):
                await asyncio.sleep(CHECK_S)
    say(f"job {job} no longer runs", err=True)


# -- how the port is reached ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """`open` makes a connection to the port, or raises OSError. Streams over SSH have the methods of asyncio's."""

    host: str
    port: int
    open: Callable[[], Awaitable[tuple[Any, Any]]]


@asynccontextmanager
async def _way(found: Client, node: dict[str, Any], port: int) -> AsyncIterator[Way]:
    """As the daemon reaches a machine over SSH, where that can be done from here: then it does not matter which address
    of it the job listens on. Else to the node's address; the daemon's own machine has the daemon's."""
    if node["ssh"] and found.address.local and (connection := await _by_ssh(node["ssh"])):
        async with connection:
            yield Way(host=node["name"], port=port, open=lambda: _through(connection, str(node["address"]), port))
        return
    own = urlsplit(found.address.url).hostname or LOOPBACK
    host = own if node["address"] in (LOOPBACK, "localhost", "::1") else str(node["address"])
    yield Way(host=host, port=port, open=lambda: asyncio.open_connection(host, port))


async def _by_ssh(said: dict[str, Any]) -> SSHClientConnection | None:
    """None: whoever calls has not the daemon's keys, or the machine does not answer."""
    from swell.core.resources import Ssh
    from swell.executors.ssh.connection import connect

    names = {field.name for field in fields(Ssh)}
    try:
        return await connect(Ssh(**{key: value for key, value in said.items() if key in names}))
    except OSError:
        return None


async def _through(connection: SSHClientConnection, address: str, port: int) -> tuple[Any, Any]:
    """Directly where its sshd forwards nothing (AllowTcpForwarding no)."""
    from asyncssh import Error

    try:
        return await connection.open_connection(LOOPBACK, port)
    except Error:
        return await asyncio.open_connection(address, port)


async def _reach(job: int, way: Way) -> None:
    try:
        async with asyncio.timeout(5.0):
            _, writer = await way.open()
    except (OSError, TimeoutError):
        raise ForwardError(
            f"nothing answers on port {way.port} of {way.host}, where job {job} runs; see in `swell logs {job}` "
            "whether it listens there yet, and try again"
        ) from None
    writer.close()


async def _listen(way: Way, local: int | None) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await way.open()
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        writer.close()

    wanted = [way.port, 0] if local is None else [local]
    for port in wanted:
        with contextlib.suppress(OSError):
            return await asyncio.start_server(serve, LOOPBACK, port)
    raise ForwardError(f"port {local} is in use here; choose another with --local, or leave it out")


async def _copy(reader: Any, writer: Any) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
