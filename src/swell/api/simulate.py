"""POST /v1/simulate: a workload under several policies, worked out beside the daemon. Nothing is changed."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Request
from pydantic import Field
from starlette.responses import Response

from swell.api.deps import Body, engine_of, router_of
from swell.api.problems import ApiError
from swell.api.whatif import BUSY
from swell.core.errors import SwellError
from swell.daemon.lookahead import Simulate
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cluster import cluster_name
from swell.sim.comparison import Trace, size_of
from swell.sim.generate import Recipe

router = router_of("cluster")
MOST_JOBS = 500
MOST_GPUS = 1024
MOST_POLICIES = 4
TRACE_BYTES = 2_000_000


class RecipeBody(Body):
    """A workload from a seed, by published distributions (`swell sim generate`)."""

    jobs: Annotated[int, Field(strict=False, ge=1, le=MOST_JOBS)] = 60
    hours: Annotated[float, Field(gt=0, le=24 * 14, description="Over which they arrive.")] = 4.0
    median_s: Annotated[float, Field(ge=1, le=86400 * 7, description="Of the durations.")] = 780.0
    elastic: Annotated[float, Field(ge=0, le=1, description="Part of the jobs that may grow and shrink.")] = 0.7
    seed: Annotated[int, Field(strict=False, ge=0, le=2**31)] = 0


class TraceBody(Body):
    name: Annotated[str, Field(max_length=200, description="Of the file; its ending says the format.")]
    content: Annotated[
        str,
        Field(max_length=TRACE_BYTES, description="Job files with `at` and `takes`, an event log, or a trace as CSV."),
    ]


class SimulateBody(Body):
    """`workload` says which jobs: those there are (queue), `generated` ones, or those of a `trace`."""

    policies: Annotated[list[str], Field(min_length=1, max_length=MOST_POLICIES)]
    placer: Annotated[str, Field(max_length=100, description="Empty: the present one.")] = ""
    workload: Literal["queue", "generated", "trace"] = "queue"
    generated: RecipeBody = Field(default_factory=RecipeBody)
    trace: TraceBody | None = None
    cluster: Annotated[
        str, Field(max_length=200, description="2x8xA100,1x4; empty: one like this. The queue runs on this one.")
    ] = ""


@router.post("/v1/simulate", responses={503: BUSY})
async def simulate(request: Request, body: SimulateBody) -> Response:
    """Figures, jobs, and who had which GPUs when, for each policy. Worked out in a process beside the daemon, one at a
    time, for at most a minute: 503 with Retry-After when it is not its turn within 10 s, or takes longer."""
    engine = engine_of(request)
    for name in body.policies:
        policy_named(name)
    if body.placer:
        placer_named(body.placer)
    present = cluster_name(engine.state.nodes.values())
    task = Simulate(
        policies=tuple(dict.fromkeys(body.policies)),
        placer=body.placer,
        source=_source(body, _gpus(body.cluster or present)),
        cluster=body.cluster,
        most_jobs=MOST_JOBS,
    )
    found = await engine.simulate(task)
    if found.refusal:
        raise ApiError(422, "Cannot be simulated", found.refusal)
    return Response(found.document, media_type="application/json")


def _source(body: SimulateBody, gpus: int) -> Recipe | Trace | None:
    if body.workload == "queue":
        if body.cluster:
            raise ApiError(422, "Not valid", "the queue is simulated on the machines there are; leave out `cluster`")
        return None
    if body.workload == "trace":
        if body.trace is None:
            raise ApiError(422, "Not valid", "send the file in `trace`: {name, content}")
        return Trace(name=body.trace.name, content=body.trace.content)
    made = body.generated
    return Recipe(
        jobs=made.jobs,
        hours=made.hours,
        median_s=made.median_s,
        elastic=made.elastic,
        seed=made.seed,
        gpus=max(1, gpus),
    )


def _gpus(cluster: str) -> int:
    if not cluster:
        return 0
    try:
        gpus = size_of(cluster)
    except SwellError as error:
        raise ApiError(422, "Not valid", str(error)) from error
    if gpus > MOST_GPUS:
        raise ApiError(422, "Not valid", f"{gpus:,} GPUs; here at most {MOST_GPUS:,} are simulated: `swell sim run`")
    return gpus
