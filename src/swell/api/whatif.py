"""POST /v1/what-if: the live queue run forward before and after a change. Nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field
from starlette.responses import Response

from swell.api.deps import Body, caller, engine_of, json_response, now_s, router_of
from swell.api.port import Engine
from swell.api.problems import MEDIA_TYPE
from swell.api.submit import Document, expand_in_order
from swell.core.errors import NotFound
from swell.core.job import JobSpec
from swell.core.resources import Node
from swell.jobfile.expand import Given, Resolve, expand
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cluster import parse_cluster
from swell.sim.forecast import Change, Effect, Outlook

router = router_of("cluster")
MAX_NEW_NODES = 1000


class ChangeBody(Body):
    """A change to try; all its parts happen at once."""

    policy: str = ""
    placer: str = ""
    options: dict[str, float | int | str | bool] | None = None
    add_nodes: Annotated[str, Field(description="2x8xA100: two nodes of eight; joined by commas.", max_length=200)] = ""
    remove_nodes: list[str] = Field(default_factory=list, max_length=MAX_NEW_NODES)
    submit: list[dict[str, Any]] = Field(default_factory=list, description="Jobs, as in POST /v1/jobs.", max_length=100)


BUSY: dict[str, Any] = {
    "description": "Too much is being worked out at present; ask again after Retry-After seconds.",
    "headers": {"Retry-After": {"schema": {"type": "integer"}}},
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


@router.post("/v1/what-if", responses={503: BUSY})
async def ask_what_if(request: Request, body: ChangeBody) -> Response:
    """Start and end of every job before and after, and the mean time to completion of each. Worked out beside the
    daemon, one at a time: 503 with Retry-After when it is not its turn within 10 s, or takes longer than 25 s."""
    engine = engine_of(request)
    effects = await engine.what_if(_change(engine, body, caller(request)))
    now = now_s(engine)
    return json_response(
        {
            "jobs": [_view(effect, now) for effect in effects],
            "before": _summary([effect.before for effect in effects], now),
            "after": _summary([effect.after for effect in effects], now),
        }
    )


def _change(engine: Engine, body: ChangeBody, user: str) -> Change:
    for name in body.remove_nodes:
        if name not in engine.state.nodes:
            raise NotFound(f"there is no node {name!r}; `swell nodes` lists the nodes there are")
    return Change(
        policy=policy_named(body.policy) if body.policy else None,
        placer=placer_named(body.placer) if body.placer else None,
        policy_options=body.options,
        add_nodes=_new_nodes(body.add_nodes) if body.add_nodes else (),
        remove_nodes=tuple(body.remove_nodes),
        submit=tuple(_specs(engine, body.submit, user)),
    )


def _new_nodes(text: str) -> tuple[Node, ...]:
    """Named so that they cannot be taken for one that is there."""
    return tuple(replace(node, name=f"new:{node.name}") for node in parse_cluster(text)[:MAX_NEW_NODES])


def _specs(engine: Engine, documents: Sequence[Document], user: str) -> list[JobSpec]:
    def expanded(document: Document, resolve: Resolve) -> list[JobSpec]:
        return expand(document, Given(user=user, now_s=now_s(engine), resolve=resolve))

    return [spec for specs in expand_in_order(engine, documents, expanded) for spec in specs]


def _view(effect: Effect, now: float) -> dict[str, Any]:
    return {
        "job": effect.job,
        "name": effect.name,
        "before": _outlook(effect.before, now),
        "after": _outlook(effect.after, now),
    }


def _outlook(outlook: Outlook | None, now: float) -> dict[str, float] | None:
    """Seconds from now."""
    if outlook is None:
        return None
    return {"starts_in_s": max(0.0, outlook.start_s - now), "ends_in_s": max(0.0, outlook.end_s - now)}


def _summary(outlooks: list[Outlook | None], now: float) -> dict[str, float | int | None]:
    ends = sorted(max(0.0, one.end_s - now) for one in outlooks if one is not None)
    if not ends:
        return {"jobs": 0, "mean_s": None, "p99_s": None, "last_s": None}
    return {
        "jobs": len(ends),
        "mean_s": sum(ends) / len(ends),
        "p99_s": ends[min(len(ends) - 1, int(0.99 * len(ends)))],
        "last_s": ends[-1],
    }
