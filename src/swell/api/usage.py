"""GET /v1/usage: what each user and each team has now, has had, and is entitled to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from swell.api.deps import MAX_NUMBER, context_of, json_response, now_s, router_of
from swell.api.views import gpu_s, ran_s
from swell.core.accounts import User
from swell.core.budgets import used_gpu_s
from swell.core.snapshot import Options
from swell.core.state import JobRecord, JobState, State
from swell.ports import Consumption

router = router_of("accounts")
WEEK_S = 7 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of one user or team. A lost job counts as failed, as in `swell history`."""

    name: str
    gpus: int = 0  # held now
    running: int = 0
    queued: int = 0
    jobs: int = 0  # that ended in this time, or have not ended
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    ran_s: float = 0.0
    gpu_s: float = 0.0


@router.get("/v1/usage")
async def get_usage(
    request: Request,
    since_s: Annotated[
        float, Query(alias="since", ge=0, le=MAX_NUMBER, description="Seconds since 1970; 0: a week ago.")
    ] = 0.0,
) -> Response:
    """Per user and per team: GPUs held now, jobs, and GPU hours of jobs that ended since then or have not ended, each
    with all its attempts. `quota` is the team's, null if it has none; `month` has the GPU hours of this calendar month
    (UTC) and the team's budget of them, null if it has none. The same sums as `swell history --by`."""
    context = context_of(request)
    engine = context.engine
    now = now_s(engine)
    since = since_s or now - WEEK_S
    ended = await engine.consumed_since(since)
    options = context.config.options
    return json_response(
        {
            "since_s": since,
            "now_s": now,
            "gpus_total": sum(len(node.gpus) for node in engine.state.nodes.values()),
            "users": _users(engine.state, ended, now, options),
            "teams": _teams(engine.state, ended, now, options),
        }
    )


def _users(state: State, ended: Sequence[Consumption], now: float, options: Options) -> list[dict[str, Any]]:
    """Users who have jobs, and users who were added. A limit of 0 is none."""
    active = ((record.spec.user, record) for record in _active(state))
    sums = summed(((one.user, one) for one in ended), active, now, also=state.users)
    return [_view(one, **_account(state.users.get(one.name)), limits=_limits(options, one.name)) for one in sums]


def _account(user: User | None) -> dict[str, object]:
    return {"team": user.team if user else "", "role": user.role if user else None}


def _limits(options: Options, user: str) -> dict[str, int]:
    limits = options.limits_for(user)
    return {"queued": limits.queued, "running": limits.running}


def _teams(state: State, ended: Sequence[Consumption], now: float, options: Options) -> list[dict[str, Any]]:
    active = ((record.spec.team, record) for record in _active(state))
    also = [*options.quotas, *options.budgets, *(user.team for user in state.users.values())]
    sums = [one for one in summed(((one.team, one) for one in ended), active, now, also=also) if one.name]
    used = used_gpu_s(state, [one.name for one in sums], now)
    return [_view(one, quota=_quota(options, one.name), month=_month(options, one.name, used)) for one in sums]


def _quota(options: Options, team: str) -> dict[str, Any] | None:
    return asdict(options.quotas[team]) if team in options.quotas else None


def _month(options: Options, team: str, used_s: Mapping[str, float]) -> dict[str, Any]:
    return {"gpu_hours": used_s[team] / 3600, "budget": options.budgets.get(team)}


def _active(state: State) -> Iterator[JobRecord]:
    return (state.jobs[job] for job in state.active)


def summed(
    ended: Iterable[tuple[str, Consumption]],
    active: Iterable[tuple[str, JobRecord]],
    now: float,
    also: Iterable[str] = (),
) -> list[Usage]:
    """By name, the largest consumer first. `also`: names that are listed whether they have jobs or not."""
    found = {name: Usage(name=name) for name in also}
    for name, past in ended:
        found[name] = _with_ended(found.get(name) or Usage(name=name), past)
    for name, record in active:
        found[name] = _with_active(found.get(name) or Usage(name=name), record, now)
    return sorted(found.values(), key=lambda one: (-one.gpu_s, one.name))


def _with_ended(sums: Usage, past: Consumption) -> Usage:
    return replace(
        sums,
        jobs=sums.jobs + past.jobs,
        completed=sums.completed + (past.jobs if past.state is JobState.COMPLETED else 0),
        failed=sums.failed + (past.jobs if past.state in (JobState.FAILED, JobState.LOST) else 0),
        cancelled=sums.cancelled + (past.jobs if past.state is JobState.CANCELLED else 0),
        ran_s=sums.ran_s + past.ran_s,
        gpu_s=sums.gpu_s + past.gpu_s,
    )


def _with_active(sums: Usage, record: JobRecord, now: float) -> Usage:
    return replace(
        sums,
        jobs=sums.jobs + 1,
        gpus=sums.gpus + (record.allocation.gpus if record.allocation else 0),
        running=sums.running + record.holding,
        queued=sums.queued + (not record.holding),
        ran_s=sums.ran_s + ran_s(record, now),
        gpu_s=sums.gpu_s + gpu_s(record, now),
    )


def _view(sums: Usage, **more: object) -> dict[str, Any]:
    view = asdict(sums)
    return {**view, "gpu_hours": view.pop("gpu_s") / 3600, **more}
