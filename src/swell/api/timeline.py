"""GET /v1/timeline: who had which GPUs when, and why that changed. The Cluster view of the dashboard draws it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Annotated

import msgspec
from fastapi import Query, Request
from starlette.responses import Response

from swell.api.deps import MAX_NUMBER, engine_of, json_response, now_s, router_of
from swell.core.resources import Allocation
from swell.ports import PastRun

router = router_of("cluster")
HOUR_S = 3600.0
MAX_RUNS = 50_000


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run held from when to when; a run that was resized in place has several. Without `to_s` it still holds
    it. `reason` says why it got this; `stop` and `stop_reason` why it was asked to leave; `exit` how it ended."""

    job: int
    attempt: int
    name: str
    user: str
    from_s: float
    where: list[tuple[str, tuple[int, ...]]]
    to_s: float | None = None
    started_s: float | None = None
    reason: str = ""
    share: bool = False
    stop: str = ""
    stop_reason: str = ""
    stop_s: float | None = None
    exit: str = ""
    exit_code: int | None = None


@router.get("/v1/timeline")
async def get_timeline(
    request: Request,
    from_s: Annotated[float, Query(alias="from", ge=0, le=MAX_NUMBER, description="0: an hour before `to`.")] = 0.0,
    to_s: Annotated[float, Query(alias="to", ge=0, le=MAX_NUMBER, description="Seconds since 1970; 0: now.")] = 0.0,
    limit: Annotated[int, Query(ge=1, le=MAX_RUNS, description="At most so many runs, the latest ones.")] = MAX_RUNS,
) -> Response:
    """Runs that held GPUs between two times, the latest first. `truncated`: there were more than `limit`. `seq` is the
    number of the last event that is in it: /v1/events?after=seq goes on from there."""
    engine = engine_of(request)
    now = now_s(engine)
    until = to_s or now
    since = from_s or until - HOUR_S
    seq = engine.state.seq
    runs = await engine.runs_between(since, until, limit)
    spans = [span for past in runs for span in _spans(past)]
    found = {"from_s": since, "to_s": until, "now_s": now, "seq": seq, "truncated": len(runs) == limit}
    return json_response({**found, "spans": spans})


def _spans(past: PastRun) -> Iterator[Span]:
    run, stop = past.run, past.run.stop
    for (from_s, allocation), after in zip_longest(past.held, past.held[1:]):
        last = after is None
        yield Span(
            job=run.id.job,
            attempt=run.id.attempt,
            name=past.name,
            user=past.user,
            from_s=from_s,
            to_s=run.ended_s if last else after[0],
            started_s=run.started_s,
            where=places(allocation),
            share=allocation.share is not None,
            reason=run.reason,
            stop=stop.why if stop and last else "",
            stop_reason=stop.reason if stop and last else "",
            stop_s=stop.at_s if stop and last else None,
            exit=run.exit_reason or "" if last else "resized",
            exit_code=run.exit_code if last else None,
        )


def places(allocation: Allocation) -> list[tuple[str, tuple[int, ...]]]:
    return [(part.node, part.gpus) for part in allocation.parts]
