"""Machines that are checked before they are added: the checks as a stream, each as it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import Request
from pydantic import AfterValidator, Field
from starlette.responses import Response

from swell.api import streams
from swell.api.deps import Body, context_of, router_of
from swell.api.nodes import NodeName
from swell.api.port import Engine
from swell.api.views import node_views
from swell.core.errors import Conflict, SwellError
from swell.core.resources import Gpu, Node, Ssh
from swell.jobfile.schema import Duration
from swell.ports import Check, Machines

router = router_of("cluster")
LEAST_LEASE_S = 5.0


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("only printable characters, on one line")
    return text


Line = Annotated[str, AfterValidator(_one_line), Field(max_length=1000)]


class MachineBody(Body):
    """How a machine is reached over SSH by the daemon, with its keys and its ~/.ssh/config."""

    name: NodeName
    host: Annotated[Line, Field(min_length=1, description="Name, address, or alias in ~/.ssh/config.")]
    user: Line = ""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    key_file: Annotated[Line, Field(description="Private key on the daemon's machine; empty: the usual ones.")] = ""
    python: Annotated[Line, Field(min_length=1)] = "python3"
    root: Annotated[Line, Field(description="Directory on a local disk of the machine; empty: ~/.swell.")] = ""
    setup: list[Line] = Field(
        default_factory=list, max_length=100, description="Shell lines before each job's command."
    )
    labels: dict[str, str] = Field(default_factory=dict)
    rack: str = ""
    realm: Annotated[Line, Field(description="Machines of one realm reach each other.")] = ""
    lease: Duration | None = None
    gpus: Annotated[
        int | None, Field(ge=0, le=1024, description="Number of slots to declare in place of its GPUs.")
    ] = None

    def node(self, known: Node | None) -> Node:
        """A machine that is known keeps its pinned host key."""
        config = Path("~/.ssh/config").expanduser()
        pinned = known.ssh.host_key if known is not None and known.ssh is not None else ""
        ssh = Ssh(
            host=self.host,
            user=self.user,
            port=self.port,
            key_file=str(Path(self.key_file).expanduser()) if self.key_file else "",
            config_host=self.host if config.exists() else "",
            host_key=pinned,
            python=self.python,
            setup=tuple(self.setup),
            root=self.root,
        )
        return Node(
            name=self.name,
            executor="ssh",
            ssh=ssh,
            labels=self.labels,
            rack=self.rack,
            realm=self.realm,
            lease_s=self.lease or 0.0,
            gpus=tuple(Gpu(index=i) for i in range(self.gpus or 0)),
            declared=() if self.gpus is None else ("gpus",),
        )


@router.post("/v1/machines", response_class=Response)
async def add_machine(request: Request, body: MachineBody) -> Response:
    """Check a machine over SSH and, if no check failed, add it. Answers with a stream: `check` for each, `node` once it
    is added, `end` with whether it was."""
    context = context_of(request)
    machines, known = context.machines, context.engine.state.nodes.get(body.name)
    if machines is None:
        raise Conflict("this daemon does not reach machines over SSH")
    if known is not None and known.ssh is None:
        raise Conflict(f"there is a node {body.name} already, which is not reached over SSH; use another --name")
    if body.lease is not None and body.lease < LEAST_LEASE_S:
        raise Conflict(f"a lease under {LEAST_LEASE_S:.0f} s would end jobs at every hiccup of the network")
    return streams.sse(_added(context.engine, machines, body.node(known)))


async def _added(engine: Engine, machines: Machines, declared: Node) -> AsyncIterator[bytes]:
    why = f"{declared.name} was not added: see what failed, and add it again"
    async for item in machines.check(declared):
        if isinstance(item, Check):
            yield streams.message("check", msgspec.to_builtins(item))
            continue
        try:
            await engine.add_node(item)
        except SwellError as error:
            why = str(error)
            break
        views = node_views(engine.state, engine.idle_gpus.use, engine.now_s())
        yield streams.message("node", next(view for view in views if view["name"] == declared.name))
        why = ""
    yield streams.message("end", {"name": declared.name, "added": not why, "why": why})
