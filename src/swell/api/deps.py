"""What routes share: the engine, where files lie, who calls, and how a job is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from swell.api.access import Need, refusal
from swell.api.eta import eta_s, starts_s
from swell.api.identity import Identities
from swell.api.port import Engine
from swell.api.problems import ApiError
from swell.api.views import JobView, job_view, public_line
from swell.config import Config
from swell.core.accounts import Caller
from swell.core.errors import NotFound
from swell.core.ids import JobId, RunId
from swell.core.resources import gpus_per_node
from swell.core.spelling import instead_of
from swell.core.state import JobRecord, last_given
from swell.jobfile.problems import Problem
from swell.plan.explain import summary
from swell.ports import Machines

_BYTE = re.compile(r"\(byte (\d+)\)")
CALLER = "swell.caller"
"""Where the guard puts who is calling, for routes to read."""
MAX_NUMBER = 10**15
"""The largest id, offset or event number accepted: stores and file systems take no larger one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    engine: Engine
    config: Config
    machines: Machines | None = None  # over SSH; None: this daemon reaches none


def json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def engine_of(request: Request) -> Engine:
    return context_of(request).engine


def caller_of(request: Request) -> Caller:
    """Who acts, as the guard found."""
    who: Caller = request.scope[CALLER]
    return who


def caller(request: Request) -> str:
    """The name of who acts: shown in the record."""
    return caller_of(request).user


def identities_of(request: Request) -> Identities:
    known: Identities = request.app.state.identities
    return known


def may_read_job(who: Caller, record: JobRecord | None) -> bool:
    """A job that was removed belongs to the daemon's owner and to operators only."""
    if record is None:
        return not refusal(who, Need.OPERATE)
    return not refusal(who, Need.READ_JOB, record)


async def known_parameters(request: Request) -> None:
    """A parameter that a route does not have is a mistake, not something to pass over in silence.

    A coroutine only because FastAPI would send a plain function to a thread."""
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in known:
            problem = Problem(path=name, what="there is no such parameter", fix=instead_of(name, known))
            raise ApiError(422, "Not valid", str(problem), [problem])


class Body(BaseModel):
    """What a request may hold: nothing unknown, nothing turned into another type (`true` is not 1)."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


_json = msgspec.json.Decoder(float_hook=_number)


class StrictRequest(Request):
    async def json(self) -> Any:
        """Without what the standard library lets pass: NaN, halves of characters. 4.0 is a whole number, as JSON Schema
        has it."""
        try:
            return _json.decode(await self.body())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            byte = _BYTE.search(str(error))
            raise json.JSONDecodeError(str(error), "", int(byte[1]) if byte else 0) from error


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def router_of(tag: str) -> APIRouter:
    return APIRouter(tags=[tag], dependencies=[Depends(known_parameters)], route_class=StrictRoute)


def now_s(engine: Engine) -> float:
    """By the daemon's clock, which all times of jobs are in."""
    return engine.now_s()


def find_job(engine: Engine, ref: str) -> JobId:
    """An id, `last`, or a name (then the latest of that name)."""
    state = engine.state
    if ref.isdecimal() and ref.isascii():
        if len(ref) >= len(str(MAX_NUMBER)):
            raise NotFound(f"there is no job {ref[:40]}; `swell ls --all` lists the jobs there are")
        return int(ref)
    if ref == "last":
        last = last_given(state)
        if not last:
            raise NotFound("there is no job yet; `swell run -- python train.py` starts one")
        return last
    named = max(named_jobs(engine, ref), default=None)
    if named is None:
        raise NotFound(f"there is no job named {ref!r}; `swell ls --all` lists the jobs there are")
    return named


def named_jobs(engine: Engine, name: str) -> list[JobId]:
    return [job for job, record in engine.state.jobs.items() if record.spec.name == name]


async def record_of(request: Request, ref: str) -> JobRecord:
    engine = engine_of(request)
    return await engine.job(find_job(engine, ref))


def run_of(text: str) -> RunId:
    try:
        run = RunId.parse(text)
    except ValueError as error:
        raise NotFound(str(error)) from error
    if max(run.job, run.attempt) > MAX_NUMBER:
        raise NotFound(f"there is no run {text[:40]}")
    return run


def bounded(text: str) -> int | None:
    """A whole number that a reader may come back with, else None."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < len(str(MAX_NUMBER)) else None


def as_seen(who: Caller, records: Sequence[JobRecord], lines: Sequence[JobView]) -> list[JobView]:
    """The lines of these records as this caller may see them."""
    return [
        line if may_read_job(who, record) else public_line(line) for record, line in zip(records, lines, strict=True)
    ]


def lines_of(engine: Engine, records: Sequence[JobRecord]) -> list[JobView]:
    now, per_node = now_s(engine), gpus_per_node(engine.state.nodes.values())
    idle = engine.idle_gpus.jobs()
    return [
        job_view(
            record,
            why=summary(record, engine.reasons(record.id), now),
            eta_s=eta_s(record, engine.book, per_node, now, engine.eta(record.id)),
            starts_s=starts_s(record, now, engine.eta(record.id)),
            now_s=now,
            idle=idle.get(record.id),
        )
        for record in records
    ]


def line_of(engine: Engine, record: JobRecord) -> JobView:
    return lines_of(engine, [record])[0]
