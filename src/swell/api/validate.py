"""POST /v1/jobs/validate: is a job file right, at which line is it not; would it fit, where, when? Stores nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import yaml
from fastapi import Query, Request
from starlette.responses import Response

from swell.api.deps import caller, engine_of, json_response, named_jobs, now_s, router_of
from swell.api.port import Engine
from swell.core.errors import Infeasible, SwellError
from swell.core.job import JobSpec
from swell.core.resources import Node
from swell.jobfile.expand import Given, expand
from swell.jobfile.problems import JobFileError, Problem, prefixed
from swell.jobfile.read import read_documents
from swell.plan.admit import at_once, check_feasible, gpus_for
from swell.sim.forecast import Change, Effect

router = router_of("jobs")
FORECAST_JOBS = 20
"""For at most this many jobs of one file it is worked out when they would run."""
SHOWN_JOBS = 100
_LINE = re.compile(r"\bline (\d+)")
_PATH = re.compile(r"[^.\[\]]+")


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
        return json_response({"valid": False, "problems": _located(error, text), "jobs": []})
    jobs = [_fit(engine_of(request), spec) for spec in specs[:SHOWN_JOBS]]
    if times:
        await _add_times(engine_of(request), specs, jobs)
    return json_response({"valid": True, "problems": [], "count": len(specs), "jobs": jobs})


def _specs(text: str, request: Request) -> list[JobSpec]:
    engine = engine_of(request)
    documents = read_documents(text)
    names = {str(document.get("name")) for document in documents}
    given = Given(
        now_s=now_s(engine),
        user=caller(request),
        resolve=lambda name: (1,) if name in names else named_jobs(engine, name),
    )
    found: list[JobSpec] = []
    problems: list[Problem] = []
    for index, document in enumerate(documents):
        try:
            found += expand(document, given)
        except JobFileError as error:
            problems += prefixed(error.problems, f"jobs[{index}]") if len(documents) > 1 else error.problems
    if problems:
        raise JobFileError(problems)
    return found


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


# -- lines ------------------------------------------------------------------------------------------------------------


def _located(error: JobFileError, text: str) -> list[dict[str, Any]]:
    roots = [] if error.syntax else _composed(text)
    last = text.rstrip().count("\n") + 1  # what is missing at the end is shown where the text ends
    return [
        {"path": p.path, "what": p.what, "fix": p.fix, "line": min(last, _line(p, roots) or _line_said(p.what))}
        for p in error.problems
    ]


def _composed(text: str) -> list[yaml.Node]:
    try:
        return [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except (yaml.YAMLError, RecursionError):
        return []


def _line_said(what: str) -> int:
    """Errors of syntax say it in words."""
    found = _LINE.search(what)
    return int(found[1]) if found else 1


def _line(problem: Problem, roots: Sequence[yaml.Node]) -> int:
    """Of the deepest part of its path that is written in the file; 0: not known."""
    if not roots:
        return 0
    jobs = [job for root in roots for job in (root.value if isinstance(root, yaml.SequenceNode) else [root])]
    steps = _PATH.findall(problem.path)
    node: yaml.Node = jobs[0]
    if len(jobs) > 1 and len(steps) > 1 and steps[0] == "jobs" and steps[1].isdecimal():
        node, steps = jobs[min(int(steps[1]), len(jobs) - 1)], steps[2:]
    line: int = node.start_mark.line + 1
    for step in steps:
        found = _inside(node, step)
        if found is None:
            break
        line, node = found
    return line


def _inside(node: yaml.Node, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        value = node.value[int(step)]
        return value.start_mark.line + 1, value
    return None
