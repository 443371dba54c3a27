"""POST /v1/jobs/validate: is a job file right, at which line is it not; would it fit, where, when? Stores nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from swell.api.deps import caller, engine_of, json_response, now_s, router_of
from swell.api.port import Engine
from swell.api.submit import Document, expand_in_order
from swell.core.errors import Infeasible, SwellError
from swell.core.job import JobSpec
from swell.core.resources import Node
from swell.jobfile.expand import Given, Resolve, expand
from swell.jobfile.lines import located
from swell.jobfile.problems import JobFileError
from swell.jobfile.read import read_documents
from swell.plan.admit import at_once, check_feasible, gpus_for
from swell.sim.forecast import Change, Effect

router = router_of("jobs")
FORECAST_JOBS = 20
"""For at most this many jobs of one file it is worked out when they would run."""
SHOWN_JOBS = 100


@router.post("/v1/jobs/validate")
async def validate(
    request: Request,
    times: Annotated[bool, Query(description="Also when they would run: takes a forecast.")] = True,
) -> Response:
    """The body is as for POST /v1/jobs, as YAML. Problems come with the line they are on; jobs with where they could
    run, how many such jobs each node runs at once, and when they would run if they were submitted now."""
    text = (await request.body()).decode(errors="replace")
    try:
        specs = _specs(text, request)
    except JobFileError as error:
        found = [{**asdict(problem), "line": line} for problem, line in located(error, text)]
        return json_response({"valid": False, "problems": found, "jobs": []})
    jobs = [_fit(engine_of(request), spec) for spec in specs[:SHOWN_JOBS]]
    if times:
        await _add_times(engine_of(request), specs, jobs)
    return json_response({"valid": True, "problems": [], "count": len(specs), "jobs": jobs})


def _specs(text: str, request: Request) -> list[JobSpec]:
    engine = engine_of(request)

    def expanded(document: Document, resolve: Resolve) -> list[JobSpec]:
        return expand(document, Given(now_s=now_s(engine), user=caller(request), resolve=resolve))

    return [spec for specs in expand_in_order(engine, read_documents(text), expanded) for spec in specs]


def _fit(engine: Engine, spec: JobSpec) -> dict[str, Any]:
    nodes = [node for _, node in sorted(engine.state.nodes.items())]
    view: dict[str, Any] = {"name": spec.name, "gpus": {"min": spec.gpus.min, "max": spec.gpus.max}, "why": ""}
    try:
        check_feasible(spec, nodes)
    except Infeasible as error:
        return {**view, "fits": False, "why": str(error), "nodes": [], "limits": []}
    alone = [node for node in nodes if _alone_on(spec, node)]
    return {**view, "fits": True, "nodes": [node.name for node in alone], "limits": [_limit(spec, n) for n in alone]}


def _limit(spec: JobSpec, node: Node) -> dict[str, Any]:
    """How many such jobs the node runs at once, and on which of its GPUs."""
    gpus = [] if spec.cpu_only else [gpu.index for gpu in gpus_for(spec, node)]
    return {"node": node.name, "at_once": at_once(spec, node), "gpus": gpus}


def _alone_on(spec: JobSpec, node: Node) -> bool:
    """This node by itself could hold it."""
    try:
        check_feasible(spec, [node])
    except Infeasible:
        return False
    return node.schedulable


async def _add_times(engine: Engine, specs: Sequence[JobSpec], jobs: Sequence[dict[str, Any]]) -> None:
    if len(specs) > FORECAST_JOBS or not all(job["fits"] for job in jobs):
        return
    known = set(engine.state.jobs)
    try:
        effects = await engine.what_if(Change(submit=tuple(specs)))
    except SwellError:  # nothing was decided yet: when it would run is not known
        return
    now = now_s(engine)
    new = sorted((e for e in effects if e.job not in known), key=lambda e: e.job)
    for view, effect in zip(jobs, new, strict=False):
        view.update(_times(effect, now))


def _times(effect: Effect, now: float) -> dict[str, float]:
    if effect.after is None:
        return {}
    return {
        "starts_in_s": max(0.0, effect.after.start_s - now),
        "ends_in_s": max(0.0, effect.after.end_s - now),
    }
