"""Routes about jobs: list, look, cancel, pause, resume, priority, remove, explain, runs."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import Response, StreamingResponse

from swell.api import logs
from swell.api.access import Need, refusal
from swell.api.deps import (
    MAX_NUMBER,
    Body,
    as_seen,
    caller,
    caller_of,
    engine_of,
    find_job,
    json_response,
    line_of,
    lines_of,
    record_of,
    router_of,
    run_of,
)
from swell.api.port import Engine
from swell.api.problems import ApiError
from swell.api.streams import sse
from swell.api.views import JobView, detail_view, run_view, speed_view
from swell.core.accounts import Caller
from swell.core.errors import NotFound, SwellError
from swell.core.ids import JobId
from swell.core.resources import gpus_per_node
from swell.jobfile import shorthand
from swell.jobfile.schema import Duration, Gpus
from swell.plan.commands import Update
from swell.ports import JobQuery

router = router_of("jobs")
CANCEL_AT_ONCE = 500
MAX_LIMIT = 1000
MAX_TAIL = 1 << 30
Problems = list[dict[str, Any]]
Rank = Annotated[int, Field(ge=0, le=MAX_NUMBER)]


class JobList(BaseModel):
    """`next` is the cursor of the next page: pass it as `after`. Null: there is none."""

    jobs: list[JobView]
    next: int | None


class Why(Body):
    reason: str = Field(default="", max_length=500)


class Priority(Body):
    priority: Annotated[
        int, BeforeValidator(shorthand.priority, json_schema_input_type=int | str), Field(ge=-1000, le=1000)
    ]


class Change(Body):
    """What is to change; what is left out stays. Forms are those of the job file."""

    gpus: Annotated[Gpus, BeforeValidator(shorthand.gpus, json_schema_input_type=int | str | Gpus)] | None = None
    time_limit: Duration | None = None
    priority: (
        Annotated[int, BeforeValidator(shorthand.priority, json_schema_input_type=int | str), Field(ge=-1000, le=1000)]
        | None
    ) = None


class Cancel(Body):
    """Which jobs: ids or names (patterns such as `train-*` too), a batch, a user, or all that have not ended. `now`:
    killed at once, without their grace."""

    jobs: list[int | str] = Field(default_factory=list, max_length=10_000)
    all: bool = False
    name: str = ""
    user: str = ""
    batch: str = ""
    reason: str = Field(default="", max_length=500)
    now: bool = False


@router.get("/v1/jobs", response_model=JobList)
async def list_jobs(
    request: Request,
    state: Literal["all", "running", "queued", "ended"] = "all",
    user: str = "",
    batch: str = "",
    ended_since: Annotated[
        float, Query(ge=0, le=MAX_NUMBER, description="Only those that ended since (seconds since 1970), or have not.")
    ] = 0.0,
    order: Annotated[
        Literal["id", "ended"],
        Query(description="`ended`, with state=ended: those that ended last first. It has no further pages."),
    ] = "id",
    after: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Cursor: `next` of the page before.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 100,
) -> Response:
    """Newest first."""
    engine = engine_of(request)
    if order == "ended" and (state != "ended" or after or ended_since):
        raise ApiError(422, "Which order?", "order=ended goes with state=ended, without after and ended_since")
    query = JobQuery(group=state, user=user, batch=batch, ended_since_s=ended_since, after=after, limit=limit)
    records = engine.lately_ended(query) if order == "ended" else await engine.jobs(query)
    following = records[-1].id if len(records) == limit and order == "id" else None
    return json_response({"jobs": as_seen(caller_of(request), records, lines_of(engine, records)), "next": following})


@router.get("/v1/jobs/{job}")
async def get_job(request: Request, job: str) -> Response:
    """By id, by name (the latest of that name) or `last`. With its spec; secrets are shown as ***."""
    record = await record_of(request, job)
    return json_response(detail_view(record, line_of(engine_of(request), record)))


@router.delete("/v1/jobs/{job}")
async def delete_job(request: Request, job: str) -> Response:
    """Stop it now if it has not ended. If it has, take it out of the record and delete, in the background, all that it
    left on disk: logs, its working copy, its checkpoints; nothing under a directory that its user named. 409 while
    another job depends on it or names its files."""
    engine = engine_of(request)
    found = find_job(engine, job)
    await engine.remove(found, by=caller(request))
    return json_response({"id": found})


@router.post("/v1/jobs/cancel")
async def cancel_jobs(request: Request, body: Cancel) -> Response:
    """Many at once. What could not be cancelled is listed with the reason; the rest is cancelled all the same."""
    engine = engine_of(request)
    wanted, problems = _allowed(caller_of(request), engine, *_select(engine, body))
    cancelled: list[JobId] = []
    for start in range(0, len(wanted), CANCEL_AT_ONCE):
        part = wanted[start : start + CANCEL_AT_ONCE]
        results = await asyncio.gather(*(_cancel(engine, job, caller(request), body) for job in part))
        cancelled += [job for job, problem in zip(part, results, strict=True) if not problem]
        problems += [{"job": job, "detail": p} for job, p in zip(part, results, strict=True) if p]
    return json_response({"cancelled": cancelled, "problems": problems})


def _allowed(who: Caller, engine: Engine, wanted: list[JobId], problems: Problems) -> tuple[list[JobId], Problems]:
    """Of these jobs, those that the caller may act on; the others are problems."""
    records = {job: engine.state.jobs.get(job) for job in wanted}
    refused = {job: refusal(who, Need.ACT_ON_JOB, record) for job, record in records.items() if record is not None}
    problems += [{"job": job, "detail": detail} for job, detail in refused.items() if detail]
    return [job for job in wanted if not refused.get(job)], problems


async def _cancel(engine: Engine, job: JobId, by: str, body: Cancel) -> str:
    try:
        await engine.cancel(job, by=by, reason=body.reason, at_once=body.now)
    except SwellError as error:
        return str(error)
    return ""


def _select(engine: Engine, body: Cancel) -> tuple[list[JobId], Problems]:
    wanted: dict[JobId, None] = {}
    problems: list[dict[str, Any]] = []
    for ref in body.jobs:
        try:
            wanted.update(dict.fromkeys(_matching(engine, str(ref))))
        except NotFound as error:
            problems.append({"job": ref, "detail": str(error)})
    if body.all or body.name or body.user or body.batch:
        wanted.update(dict.fromkeys(_filtered(engine, body)))
    elif not body.jobs:
        raise ApiError(422, "Which jobs?", "name jobs, or give name, user, batch or all")
    return list(wanted), problems


def _matching(engine: Engine, ref: str) -> Sequence[JobId]:
    """A number or `last` names one job; a name or pattern all of that name that have not ended."""
    if (ref.isdecimal() and ref.isascii()) or ref == "last":
        return [find_job(engine, ref)]
    state = engine.state
    found = [job for job in state.active if fnmatch.fnmatchcase(state.jobs[job].spec.name, ref)]
    if not found:
        raise NotFound(f"there is no job {ref} that could be cancelled")
    return found


def _filtered(engine: Engine, body: Cancel) -> Sequence[JobId]:
    state = engine.state
    active = (state.jobs[job] for job in state.active)
    return [
        record.id
        for record in active
        if (not body.name or fnmatch.fnmatchcase(record.spec.name, body.name))
        and (not body.user or record.spec.user == body.user)
        and (not body.batch or record.batch == body.batch)
    ]


@router.post("/v1/jobs/{job}/cancel", response_model=JobView)
async def cancel_job(request: Request, job: str, body: Why | None = None) -> Response:
    """A queued job is given up; a running one is stopped: asked, then made to after its grace."""
    engine = engine_of(request)
    await engine.cancel(find_job(engine, job), by=caller(request), reason=body.reason if body else "")
    return await _answer(request, job)


@router.post("/v1/jobs/{job}/pause", response_model=JobView)
async def pause_job(request: Request, job: str) -> Response:
    """Stops it at its next checkpoint and keeps it out of the queue until it is resumed."""
    engine = engine_of(request)
    await engine.pause(find_job(engine, job), by=caller(request))
    return await _answer(request, job)


@router.post("/v1/jobs/{job}/resume", response_model=JobView)
async def resume_job(request: Request, job: str) -> Response:
    engine = engine_of(request)
    await engine.resume(find_job(engine, job), by=caller(request))
    return await _answer(request, job)


@router.post("/v1/jobs/{job}/priority", response_model=JobView)
async def set_priority(request: Request, job: str, body: Priority) -> Response:
    engine = engine_of(request)
    await engine.set_priority(find_job(engine, job), body.priority, by=caller(request))
    return await _answer(request, job)


@router.post("/v1/jobs/{job}/update", response_model=JobView)
async def update_job(request: Request, job: str, body: Change) -> Response:
    """Change what a job that has not ended asks for. 409 where a running job cannot follow, with the reason."""
    if body.gpus is None and body.time_limit is None and body.priority is None:
        raise ApiError(422, "Nothing to change", "name gpus, time_limit or priority")
    engine = engine_of(request)
    wanted = Update(
        gpus=body.gpus.request() if body.gpus else None, time_limit_s=body.time_limit, priority=body.priority
    )
    await engine.update(find_job(engine, job), wanted, by=caller(request))
    return await _answer(request, job)


@router.post("/v1/jobs/{job}/requeue", response_model=JobView)
async def requeue_job(request: Request, job: str) -> Response:
    """Back into the queue: an ended job runs again with the files and checkpoints it has, a running one is stopped at
    its next checkpoint and goes on later."""
    engine = engine_of(request)
    await engine.requeue(find_job(engine, job), by=caller(request))
    return await _answer(request, job)


async def _answer(request: Request, job: str) -> Response:
    return json_response(line_of(engine_of(request), await record_of(request, job)))


@router.get("/v1/jobs/{job}/explain")
async def explain_job(request: Request, job: str) -> Response:
    """Why the job waits, or why it has what it has: every reason with numbers, the jobs ahead (the first 100;
    `ahead_count` counts all), when it will start, and the cheapest change that would start it. All of it is of the last
    pass. While that change is being worked out, `missing` says so: ask again. `trouble`: why nothing is decided."""
    engine = engine_of(request)
    return json_response(await engine.explain(find_job(engine, job)))


@router.get("/v1/jobs/{job}/speed")
async def get_speed(request: Request, job: str) -> Response:
    """How fast it is on how many GPUs: the curve that decisions use, what was measured, and what the curve rests on."""
    record, engine = await record_of(request, job), engine_of(request)
    return json_response(speed_view(record, engine.book, gpus_per_node(engine.state.nodes.values())))


@router.get("/v1/jobs/{job}/series")
async def get_series(request: Request, job: str) -> Response:
    """What its library measured lately (losses, step times): by name, pairs of time and value, oldest first, at most
    400 of each. Since the daemon started: measurements are not part of the record."""
    record, engine = await record_of(request, job), engine_of(request)
    return json_response({"series": engine.series(record.id)})


@router.get("/v1/jobs/{job}/runs")
async def list_runs(request: Request, job: str) -> Response:
    """Every attempt, oldest first."""
    record = await record_of(request, job)
    runs = await engine_of(request).runs(record.id)
    return json_response({"runs": [run_view(run) for run in sorted(runs, key=lambda run: run.id)]})


@router.get("/v1/runs/{run}")
async def get_run(request: Request, run: str) -> Response:
    """One attempt: `7.2` is the second of job 7."""
    wanted = run_of(run)
    for found in await engine_of(request).runs(wanted.job):
        if found.id == wanted:
            return json_response(run_view(found))
    raise NotFound(f"there is no run {run}; `swell show {wanted.job}` lists the attempts of job {wanted.job}")


@router.get("/v1/jobs/{job}/logs", response_class=Response)
async def get_logs(
    request: Request,
    job: str,
    follow: Annotated[bool, Query(description="Server-sent events until the job has ended.")] = False,
    rank: Annotated[Rank | Literal["all"], Query(description="Of this process; `all` with follow.")] = 0,
    attempt: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="0: all of them, one after the other.")] = 0,
    offset: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Byte to begin with, within `attempt`.")] = 0,
    limit: Annotated[int, Query(ge=0, description="Most bytes to return; 0: all that is there.")] = 0,
    tail: Annotated[
        int, Query(ge=0, le=MAX_TAIL, description="How many bytes before the end (of `attempt`) to begin.")
    ] = 0,
    since: Annotated[
        float,
        Query(ge=0, le=MAX_NUMBER, description="Only what was written since (seconds since 1970), or 5 s before that."),
    ] = 0.0,
) -> Response:
    """What the job printed. Messages `state`, `log` and, when the job has ended, `end`; resume with Last-Event-ID."""
    record = await record_of(request, job)
    engine = engine_of(request)
    if attempt > record.attempts and (record.ended or not follow):
        raise NotFound(
            f"job {record.id} has no attempt {attempt}, of {record.attempts}; `swell show {record.id}` lists them"
        )
    which = None if rank == "all" else rank
    if which:  # every attempt has rank 0
        await logs.check_rank(engine, record, which, attempt, follow=follow)
    if since and (offset or tail):
        raise ApiError(422, "Where to begin?", "since goes without offset and tail")
    place = logs.Place(attempt or 1, (offset,))
    if since:
        place = await logs.place_since(engine, record, which, since, attempt)
    if follow:
        resumed = logs.Place.parse(request.headers.get("last-event-id", ""))
        if resumed is None and tail:
            place = await logs.place_near_end(engine, record, which, tail, attempt)
        return sse(logs.follow(engine, record.id, which, resumed or place))
    if rank == "all":
        raise ApiError(422, "Which process?", "rank=all goes with follow=true; else name one, such as rank=0")
    if offset and not attempt:
        raise ApiError(422, "Which attempt?", "offset counts within one attempt; add attempt=1")
    if tail and not offset:
        place = await logs.place_near_end(engine, record, rank, tail, attempt)
    content = logs.raw(engine, record.id, rank, place, last=attempt or record.attempts, limit=limit)
    began = {"Swell-Log-Offset": str(place.offset(0))}
    return StreamingResponse(content, media_type="application/octet-stream", headers=began)
