"""The application: routes behind one guard. `create_app(engine, token, config)` is all that the daemon calls."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, compile_path
from starlette.types import Scope

from swell import __version__
from swell.api import (
    accounts,
    cluster,
    inside,
    job_files,
    jobs,
    live,
    metrics,
    nodes,
    openapi,
    problems,
    quota,
    simulate,
    timeline,
    ui,
    usage,
    validate,
    whatif,
)
from swell.api import machines as machines_routes
from swell.api.attempts import Attempts
from swell.api.audit import Audit
from swell.api.deps import Context
from swell.api.guard import Guard
from swell.api.identity import Identities
from swell.api.oidc import OidcLogin
from swell.api.port import Engine
from swell.api.rates import Rates
from swell.api.sessions import Sessions
from swell.api.submit import submit
from swell.config import Config
from swell.core.errors import SwellError
from swell.jobfile.expand import NAME_PATTERN, NAME_RULE
from swell.jobfile.problems import Problem
from swell.jobfile.units import written
from swell.ports import Machines
from swell.web.assets import Assets


class PlainRoute(Route):
    """A route without FastAPI's parsing. Like FastAPI's own it names itself in the scope: spans need its path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return match, {**child, "route": self}


def create_app(
    engine: Engine, token: str, config: Config, metrics_token: str = "", machines: Machines | None = None
) -> FastAPI:
    app = FastAPI(
        title="Swell",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
    )
    app.state.context = Context(engine=engine, config=config, machines=machines)
    app.state.sessions = sessions = Sessions(token, time.time)
    app.state.identities = identities = Identities(
        token,
        sessions,
        lambda: app.state.context.engine.state,
        own_uid=os.geteuid(),
        socket_role=config.socket_role,
    )
    app.state.attempts = Attempts(time.monotonic)
    app.state.audit = Audit(lambda: app.state.context.config.home, time.time)
    app.state.assets = Assets()
    app.state.live = live.Live()
    app.state.hooks = None
    app.state.metrics = measured = metrics.Metrics(lambda: app.state.context.engine)
    app.router.routes[:0] = [  # before all others: matched first, and often
        PlainRoute("/v1/runs/{run}/report", inside.report, methods=["POST"]),
        PlainRoute("/v1/runs/{run}/stop", inside.stop, methods=["GET"]),
        PlainRoute("/v1/runs/{run}/lease", inside.lease, methods=["POST"]),
        PlainRoute("/v1/runs/{run}/files", inside.files, methods=["GET"]),
        PlainRoute("/v1/jobs", submit, methods=["POST"]),
    ]
    app.include_router(jobs.router)
    app.include_router(job_files.router)
    app.include_router(cluster.router)
    app.include_router(nodes.router)
    app.include_router(machines_routes.router)
    app.include_router(whatif.router)
    for routes in (quota, accounts, usage, simulate, timeline, live, validate, metrics, ui):
        app.include_router(routes.router)
    app.router.routes += [*ui.FILES, *OidcLogin(lambda: app.state.context.config, sessions).routes()]
    app.add_exception_handler(SwellError, _known)
    app.add_exception_handler(problems.ApiError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(metrics.Timed, metrics=measured)
    app.add_middleware(
        Guard,
        token=token,
        hosts=config.host_names,
        identities=identities,
        engine=lambda: app.state.context.engine,
        attempts=app.state.attempts,
        audit=app.state.audit,
        rates=Rates(time.monotonic),
        limits_of=lambda user: app.state.context.config.options.limits_for(user),
        metrics_token=metrics_token,
    )
    _describe(app)
    return app


async def _known(_: Request, error: Exception) -> Response:
    return problems.from_error(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [_problem(detail) for detail in error.errors()]
    detail = "\n".join(str(replace(problem, fix="")) for problem in found)  # people read it too, and know no REST
    return problems.response(422, "Not valid", detail, found)


def _problem(detail: Any) -> Problem:
    where, *path = detail["loc"]
    if detail["type"] == "json_invalid":
        return Problem(path="", what=f"not valid JSON at byte {path[0] if path else 0}", fix="check quotes and commas")
    name = ".".join(map(str, path)) or str(where)
    if detail["type"] == "string_pattern_mismatch" and NAME_PATTERN in detail["ctx"]["pattern"]:
        return Problem(path=name, what=f"{written(detail['input'])} is not a name Swell can use; {NAME_RULE}", fix="")
    fix = "see /v1/openapi.json for what may be sent"
    return Problem(path=name, what=_in_our_words(str(detail["msg"])), fix=fix)


def _in_our_words(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "must be", 1)


ELSEWHERE: Mapping[str, str] = {
    "/api/v1/post": "jobs are submitted with POST /v1/jobs (name, command, image, gpus)",
    "/api/v1/get": "jobs are listed by GET /v1/jobs?state=running, queued or ended; one is GET /v1/jobs/ID",
    "/api/v1/delete": "DELETE /v1/jobs/ID stops a job at once, and takes one that has ended out of the record",
    "/training": "POST /v1/jobs submits, GET /v1/jobs lists, POST /v1/jobs/cancel stops",
    "/algorithm": "PUT /v1/policy changes the policy",
}
"""Addresses of Schedulearn and Voda: the answer names ours."""


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, problems.ApiError):  # what reading the body raised, wrapped by FastAPI
        return problems.from_error(error.__cause__)
    nothing = ELSEWHERE.get(request.url.path.rstrip("/"), "there is nothing here; see /v1/openapi.json")
    hint = {404: nothing, 405: "not with this method; see /v1/openapi.json"}
    detail = hint.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = _allowed(request) or headers.get("Allow", "")
    return problems.response(error.status_code, str(error.detail), detail, headers=headers)


def _allowed(request: Request) -> str:
    """Methods of all routes with this path: each route knows only its own."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    path = request.url.path
    found = [paths[path]] if path in paths else [m for t, m in paths.items() if compile_path(t)[0].fullmatch(path)]
    return ", ".join(sorted({method.upper() for methods in found for method in methods}))


def _describe(app: FastAPI) -> None:
    generated = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generated()
            openapi.complete(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
