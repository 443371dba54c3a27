"""Routes about limits and about who did what: one's own quota, everybody's, and the audit log."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from swell.api.attempts import BURST
from swell.api.audit import REFUSED, Audit, Entry
from swell.api.bodies import MAX_BODY
from swell.api.deps import caller_of, context_of, engine_of, json_response, router_of
from swell.api.guard import MAX_AT_ONCE
from swell.api.jobs import MAX_LIMIT
from swell.api.problems import ApiError
from swell.core.accounts import Role
from swell.core.budgets import used_gpu_s
from swell.core.limits import Limits, Use, use_of
from swell.core.snapshot import Options, Quota
from swell.core.state import JobRecord, State, team_of
from swell.jobfile.shorthand import MAX_ARRAY

router = router_of("accounts")
MAX_ENTRIES = 10_000


@router.get("/v1/quota")
async def quota(
    request: Request,
    user: Annotated[str, Query(max_length=100, description="Empty: oneself. Others: for operators.")] = "",
) -> Response:
    """What a user and their team have, what they may have, and what one request may hold. A limit of 0 is none."""
    who, state, options = caller_of(request), engine_of(request).state, context_of(request).config.options
    name = user or who.user
    if name != who.user and not who.role.includes(Role.OPERATOR):
        raise ApiError(403, "Not allowed", f"you are {who.user}; only operators see the quotas of others")
    account = state.users.get(name)
    team = account.team if account else who.team if name == who.user else ""
    found = {
        "user": _user(state, options, name),
        "team": _team(request, team or name) if team or name in {*options.quotas, *options.budgets} else None,
        "requests": {
            "max_bytes": MAX_BODY,
            "max_jobs": MAX_ARRAY,
            "max_page": MAX_LIMIT,
            "max_at_once": MAX_AT_ONCE,
            "max_wrong_tokens": BURST,
            "max_files_mib": context_of(request).config.snapshot_max_mib,
        },
    }
    return json_response(found)


@router.get("/v1/quotas")
async def quotas(request: Request) -> Response:
    """Of every user who was added or has jobs, and of every team with a quota or members."""
    state, options = engine_of(request).state, context_of(request).config.options
    active = _active(state)
    users = {*state.users, *(record.spec.user for record in active), *options.limits_of}
    members = {*(user.team for user in state.users.values()), *(record.spec.team for record in active)}
    teams = {*options.quotas, *options.budgets, *members}
    found = {
        "users": [_user(state, options, name) for name in sorted(users - {""})],
        "teams": [_team(request, name) for name in sorted(teams - {""})],
    }
    return json_response(found)


@router.get("/v1/audit")
async def audit(
    request: Request,
    user: Annotated[str, Query(max_length=100, description="Only of this user.")] = "",
    since_s: Annotated[float, Query(ge=0, description="Only since then (seconds since 1970).")] = 0.0,
    refused: Annotated[bool, Query(description="Only what was refused.")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = 100,
) -> Response:
    """Requests that changed something, and those that were refused, newest first: who, when, from where."""
    kept: Audit = request.app.state.audit

    def matches(entry: Entry) -> bool:
        return (not user or entry.user == user) and entry.at_s >= since_s and (not refused or entry.status in REFUSED)

    return json_response({"entries": await asyncio.to_thread(kept.entries, matches, limit)})


def _active(state: State) -> list[JobRecord]:
    return [state.jobs[job] for job in state.active]


def _user(state: State, options: Options, name: str) -> dict[str, Any]:
    use = use_of(record for record in _active(state) if record.spec.user == name)
    return {"name": name, "use": _use(use), "limits": _limits(options.limits_for(name))}


def _team(request: Request, name: str) -> dict[str, Any]:
    """Jobs of a user without a team count for a quota under the user's own name, as decisions do."""
    engine, options = engine_of(request), context_of(request).config.options
    state, known = engine.state, options.quotas.get(name)
    used_s = used_gpu_s(state, [name], engine.now_s())[name]
    return {
        "name": name,
        "use": _use(use_of(record for record in _active(state) if team_of(record.spec) == name)),
        "quota": _quota(known) if known else None,
        "month": {"gpu_hours": round(used_s / 3600, 3), "budget": options.budgets.get(name)},
        "members": sorted(user.name for user in state.users.values() if user.team == name),
    }


def _use(use: Use) -> dict[str, int]:
    return {"queued": use.queued, "running": use.running, "gpus": use.gpus}


def _limits(limits: Limits) -> dict[str, float]:
    return {"queued": limits.queued, "running": limits.running, "requests_per_s": limits.requests_per_s}


def _quota(quota: Quota) -> dict[str, Any]:
    return {"gpus": quota.gpus, "borrow": quota.borrow}
