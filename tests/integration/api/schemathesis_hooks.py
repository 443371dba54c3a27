"""For Schemathesis: streams that follow for ever, and polls that wait, are asked for without waiting; half of the jobs
and nodes that are asked for are there."""

import zlib
from typing import Any

import schemathesis

LASTING = ("/v1/events", "/v1/jobs/{job}/logs")
TRUE = ("true", "1", "yes", "on", "t", "y")
THERE = {"job": ("1", "2", "3", "last", "sleeper"), "node": ("n1",), "run": ("1.1", "2.1", "7.2")}


@schemathesis.hook
def before_call(ctx: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    query = dict(case.query or {})
    if case.operation.path in LASTING and str(query.get("follow", "true")).lower() in TRUE:
        case.query = {**query, "follow": "false"}
    if "wait_s" in query:
        case.query = {**query, "wait_s": min(query["wait_s"], 0) if isinstance(query["wait_s"], float) else "0"}
    chance = zlib.crc32(repr((case.path_parameters, query)).encode(errors="replace"))
    for name, known in THERE.items():
        if name in (case.path_parameters or {}) and chance % 2:
            case.path_parameters = {**case.path_parameters, name: known[chance // 2 % len(known)]}
