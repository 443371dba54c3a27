"""Routes about nodes: list, declare, cordon, drain, remove, and what a person knows of one that does not answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import AfterValidator, Field
from starlette.responses import Response

from swell.api.deps import Body, caller, context_of, engine_of, json_response, router_of
from swell.api.views import node_views
from swell.core.errors import Conflict, NotFound
from swell.core.resources import Gpu, Node, NodeCondition
from swell.jobfile.expand import NAME_PATTERN, NAME_RULE, is_name
from swell.jobfile.schema import Size
from swell.ports import Done

router = router_of("cluster")
MAX_NODE_GPUS = 1024


def _node_name(name: str) -> str:
    if "@" in name:
        raise ValueError("this route declares slots on the daemon's machine; POST /v1/machines adds one over SSH")
    if not is_name(name):
        raise ValueError(f"{name[:120]!r} is not a name Swell can use; {NAME_RULE}")
    return name


NodeName = Annotated[
    str,
    AfterValidator(_node_name),
    Field(description=NAME_RULE, json_schema_extra={"pattern": f"^{NAME_PATTERN}$"}),
]


class NodeBody(Body):
    """A machine and what it has. Its processes run on the daemon's own machine: slots to try things with."""

    name: NodeName
    gpus: Annotated[int, Field(ge=0, le=MAX_NODE_GPUS)] = 0
    gpu_type: str = "gpu"
    gpu_memory: Size = 0
    cpus: Annotated[int, Field(ge=1, le=4096)] = 1
    memory: Size = 1024
    labels: dict[str, str] = Field(default_factory=dict)
    rack: str = ""
    address: str = "127.0.0.1"
    executor: Literal["local"] = "local"

    def node(self) -> Node:
        gpus = tuple(Gpu(index=i, type=self.gpu_type, memory_mib=self.gpu_memory) for i in range(self.gpus))
        return Node(
            name=self.name,
            gpus=gpus,
            cpus=self.cpus,
            memory_mib=self.memory,
            labels=self.labels,
            rack=self.rack,
            address=self.address,
            executor=self.executor,
        )


class SlotsBody(Body):
    gpus: int | None = Field(ge=0, le=1024)


class LostBody(Body):
    is_off: bool


class NodeWhy(Body):
    why: str = Field(default="", max_length=500)


@router.get("/v1/nodes")
async def list_nodes(request: Request) -> Response:
    return json_response({"nodes": _views(request)})


@router.post("/v1/nodes", status_code=201)
async def add_node(request: Request, body: NodeBody) -> Response:
    engine = engine_of(request)
    if body.name in engine.state.nodes:
        raise Conflict(f"there is a node {body.name} already; remove it first (`swell node remove {body.name}`)")
    await engine.add_node(body.node())
    return _node(request, body.name, 201)


@router.post("/v1/slots")
async def declare_slots(request: Request, body: SlotsBody) -> Response:
    """Number of slots on the daemon's own machine instead of the GPUs that it finds (null: those). More are there at
    once, fewer as they come free; later starts have the same number."""
    await engine_of(request).declare_slots(body.gpus)
    return await list_nodes(request)


_CONDITIONS = {
    "cordon": NodeCondition.CORDONED,
    "uncordon": NodeCondition.READY,
    "drain": NodeCondition.DRAINING,
}


@router.get("/v1/nodes/{node}")
async def get_node(request: Request, node: str) -> Response:
    return _node(request, node)


@router.post("/v1/nodes/{node}/lost")
async def lose_node(request: Request, node: str, body: LostBody) -> Response:
    """A person knows that a machine which does not answer is switched off: its runs count as over now, without waiting
    for their leases, and continue elsewhere. If it is not off, a job may run twice."""
    if not body.is_off:
        raise Conflict(f"say that {node} is switched off (is_off: true); only then do its jobs continue elsewhere now")
    await engine_of(request).lose_node(node, by=caller(request))
    return _node(request, node)


@router.post("/v1/nodes/{node}/{action}")
async def change_node(
    request: Request, node: str, action: Literal["cordon", "uncordon", "drain"], body: NodeWhy | None = None
) -> Response:
    """cordon: nothing new. drain: also checkpoint and move away what runs. uncordon: back to normal."""
    why = body.why if body else ""
    await engine_of(request).set_node_condition(node, _CONDITIONS[action], why=why, by=caller(request))
    return _node(request, node)


@router.delete("/v1/nodes/{node}")
async def remove_node(
    request: Request,
    node: str,
    keep_files: Annotated[bool, Query(description="Leave what Swell keeps on the machine where it is.")] = False,
) -> Response:
    """Take a node out of the cluster. Of a machine over SSH all that Swell keeps there is deleted as well, with the
    working copies and checkpoints of jobs; `left` says what could not be, and why."""
    context, known = context_of(request), engine_of(request).state.nodes.get(node)
    await context.engine.remove_node(node, by=caller(request))
    if known is None or known.ssh is None or context.machines is None:
        return json_response({"name": node, "left": ""})
    if keep_files:
        return json_response({"name": node, "left": "what Swell keeps there is still there, as you asked"})
    answer = await context.machines.clean(known)
    return json_response({"name": node, "left": "" if isinstance(answer, Done) else answer.why})


def _views(request: Request) -> list[dict[str, Any]]:
    engine = engine_of(request)
    return node_views(engine.state, engine.idle_gpus.use, engine.now_s())


def _node(request: Request, name: str, status: int = 200) -> Response:
    for view in _views(request):
        if view["name"] == name:
            return json_response(view, status)
    raise NotFound(f"there is no node {name!r}; `swell nodes` lists them")
