"""`swell port-forward JOB PORT`: a port of a running job, on this machine."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from swell.cli import completion
from swell.cli.common import client, connected, print_json
from swell.cli.terminal import safe, say
from swell.client.http import Client
from swell.core.errors import SwellError

LOOPBACK = "127.0.0.1"
CHECK_S = 2.0
CHUNK = 65536


class ForwardError(SwellError):
    """The port cannot be had; the message says why and what to do."""


@click.command("port-forward")
@click.argument("job", type=completion.JOB)
@click.argument("port", type=click.IntRange(1, 65535))
@click.option(
    "--local", type=click.IntRange(0, 65535), default=None, help="Port here.  [default: the same, or a free one]"
)
@connected
def port_forward(home: Path | None, as_json: bool, job: str, port: int, local: int | None) -> None:
    """Make PORT of JOB reachable on this machine until it ends, or Ctrl-C.

    PORT is the one that the job listens on. With several workers it is that of rank 0.
    """
    found = client(home)
    view = found.job(job)
    host = host_of(found, view)
    asyncio.run(_forward(found, int(view["id"]), (host, port), local, as_json))


def host_of(found: Client, view: dict[str, Any]) -> str:
    """Where its first worker runs, as seen from here: the daemon's own machine has the daemon's address."""
    if view["state"] != "running" or not view["where"]:
        raise ForwardError(f"job {view['id']} is not running ({view['state']}), so nothing listens on its ports yet")
    name = str(view["where"][0]).partition(":")[0]
    nodes = {node["name"]: node["address"] for node in found.get("/v1/nodes")["nodes"]}
    address = str(nodes.get(name, LOOPBACK))
    own = urlsplit(found.address.url).hostname or LOOPBACK
    return own if address in (LOOPBACK, "localhost", "::1") else address


async def _forward(found: Client, job: int, target: tuple[str, int], local: int | None, as_json: bool) -> None:
    await _reach(job, target)
    server = await _listen(target, local)
    port = server.sockets[0].getsockname()[1]
    if as_json:
        print_json({"job": job, "local": port, "host": target[0], "port": target[1]})
    else:
        say(f"http://{LOOPBACK}:{port} is port {target[1]} of job {job} on {safe(target[0])}; Ctrl-C ends this")
    async with server:
        while (await asyncio.to_thread(found.job, str(job)))["state"] in ("running", "stopping"):
            await asyncio.sleep(CHECK_S)
    say(f"job {job} no longer runs", err=True)


async def _reach(job: int, target: tuple[str, int]) -> None:
    try:
        async with asyncio.timeout(5.0):
            _, writer = await asyncio.open_connection(*target)
    except (OSError, TimeoutError):
        raise ForwardError(
            f"nothing answers on port {target[1]} of {target[0]}, where job {job} runs; see in `swell logs {job}` "
            "whether it listens there yet, and try again"
        ) from None
    writer.close()


async def _listen(target: tuple[str, int], local: int | None) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection(*target)
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        writer.close()

    wanted = [target[1], 0] if local is None else [local]
    for port in wanted:
        with contextlib.suppress(OSError):
            return await asyncio.start_server(serve, LOOPBACK, port)
    raise ForwardError(f"port {local} is in use here; choose another with --local, or leave it out")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
