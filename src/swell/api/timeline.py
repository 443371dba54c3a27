"""GET /v1/timeline: who had which GPUs when, and why that changed. The Cluster view of the dashboard draws it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from swell.api.deps import MAX_NUMBER, caller_of, engine_of, json_response, may_read_job, now_s, router_of
from swell.api.views import public_span
from swell.sim.lanes import spans_of

router = router_of("cluster")
HOUR_S = 3600.0
MAX_RUNS = 50_000


@router.get("/v1/timeline")
async def get_timeline(
    request: Request,
    from_s: Annotated[float, Query(alias="from", ge=0, le=MAX_NUMBER, description="0: an hour before `to`.")] = 0.0,
    to_s: Annotated[float, Query(alias="to", ge=0, le=MAX_NUMBER, description="Seconds since 1970; 0: now.")] = 0.0,
    limit: Annotated[int, Query(ge=1, le=MAX_RUNS, description="Most runs to return, the latest ones.")] = MAX_RUNS,
) -> Response:
    """Runs that held GPUs between two times, the latest first. `truncated`: there were more than `limit`. `seq` is the
    number of the last event that is in it: /v1/events?after=seq goes on from there."""
    engine, who = engine_of(request), caller_of(request)
    now = now_s(engine)
    until = to_s or now
    since = from_s or until - HOUR_S
    seq = engine.state.seq
    runs = await engine.runs_between(since, until, limit)
    spans = [
        span if may_read_job(who, engine.state.jobs.get(span.job)) else public_span(span)
        for past in runs
        for span in spans_of(past)
    ]
    found = {"from_s": since, "to_s": until, "now_s": now, "seq": seq, "truncated": len(runs) == limit}
    return json_response({**found, "spans": spans})
