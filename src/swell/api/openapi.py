"""What FastAPI does not see of the API: plain Starlette routes, streams, and every status that a route can answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from swell.api.deps import MAX_NUMBER
from swell.api.inside import LeaseRequest
from swell.daemon.reports import RunReport, StopView
from swell.daemon.run_leases import LeaseView
from swell.jobfile.schema import JobModel

_REF = "#/components/schemas/{name}"
_LEASE_PATH = "/v1/runs/{run}/lease"
_RUN = {"name": "run", "in": "path", "required": True, "schema": {"type": "string"}, "example": "7.2"}


STATUSES: Mapping[int, str] = {
    400: "cannot be read (not JSON, not YAML, not a tar, several Host headers)",
    401: "no token, or a wrong one",
    403: "called through a page or a name of somebody else",
    404: "no such job, run, node, policy or path",
    405: "not with this method",
    408: "the body came too slowly",
    409: "not possible in the state it is in",
    410: "no longer kept; or, to a run, that it is over",
    413: "too large",
    422: "not valid, or can never run here",
    429: "too many requests of this user, or wrong tokens from this address; `Retry-After` says when to try again",
    500: "an error in Swell",
    503: "not now; try again later",
    507: "cannot be stored, or read from where it is stored: a full disk, a database that does not answer",
}
OPEN: Mapping[str, list[dict[str, list[str]]]] = {"/v1/health": [], "/v1/ui/sessions": [{}, {"token": []}]}
"""Paths that need no token, or not always."""
_STREAMS = {
    "/v1/events": ("text/event-stream",),
    "/v1/live": ("text/event-stream",),
    "/v1/jobs/{job}/logs": ("application/octet-stream", "text/event-stream"),
    "/v1/jobs/{job}/content": ("application/octet-stream",),
    "/v1/machines": ("text/event-stream",),
}
_BODIES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("put", "/v1/files/{content_hash}"): {
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
    },
    ("post", "/v1/jobs/validate"): {"application/yaml": {"schema": {}}},
}
"""Of routes that read the body themselves."""
_NAMING = frozenset({("post", "/v1/tokens")})
"""Routes whose body names something that may not be there."""
_NO_STORE = frozenset({"/v1/health", "/v1/schema/job"})


def complete(document: dict[str, Any]) -> None:
    """Add to FastAPI's document what it does not see."""
    _add_plain_routes(document)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path in OPEN:
                operation["security"] = OPEN[path]
            if (method, path) in _BODIES:
                operation["requestBody"] = {"content": _BODIES[method, path]}
            kept = {status: found for status, found in operation["responses"].items() if status.startswith("2")}
            refused = {str(status): _refused(status) for status in _statuses(path, method, operation)}
            operation["responses"] = {**kept, **refused}
        if path in _STREAMS:
            next(iter(methods.values()))["responses"]["200"]["content"] = {kind: {} for kind in _STREAMS[path]}
    for unused in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(unused, None)


def _statuses(path: str, method: str, operation: Mapping[str, Any]) -> list[int]:
    """Beside success. 500 is not among them: it is a bug."""
    found = {400, 403, 413, 422}
    if OPEN.get(path) != []:
        found |= {401, 429}
    if "requestBody" in operation:
        found.add(408)
    if "{" in path or (method, path) in _NAMING or path in ("/v1/policy", "/v1/what-if", "/v1/simulate"):
        found.add(404)
    if method != "get":
        found.add(409)
    if path == "/v1/events" or path.startswith("/v1/runs/{run}/"):
        found.add(410)
    if path not in _NO_STORE:
        found |= {503, 507}
    return sorted(found)


def _refused(status: int) -> dict[str, Any]:
    return {"description": STATUSES[status], "content": {"application/problem+json": {"schema": _ref("Problem")}}}


def _add_plain_routes(document: dict[str, Any]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(_job_schemas())
    schemas.update(msgspec.json.schema_components([RunReport, StopView, LeaseRequest, LeaseView], ref_template=_REF)[1])
    schemas["Problem"] = _PROBLEM
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    document["paths"].setdefault("/v1/jobs", {})["post"] = _submit()
    document["paths"]["/v1/runs/{run}/report"] = {"post": _report()}
    document["paths"]["/v1/runs/{run}/stop"] = {"get": _stop()}
    document["paths"]["/v1/runs/{run}/files"] = {"get": _files()}
    document["paths"][_LEASE_PATH] = {"post": _lease()}


def _job_schemas() -> dict[str, Any]:
    schema = JobModel.model_json_schema(mode="validation", ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs", {}), "Job": {**schema, "title": "Job"}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REF.format(name=name)}


def _submit() -> dict[str, Any]:
    one_or_many = {"anyOf": [_ref("Job"), {"type": "array", "items": _ref("Job"), "minItems": 1}]}
    key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 200}}
    return {
        "tags": ["jobs"],
        "operationId": "submit_jobs",
        "summary": "Submit one job or many",
        "description": "Durable when answered. The same Idempotency-Key twice is one submission.",
        "parameters": [key],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": one_or_many}, "application/yaml": {"schema": {}}},
        },
        "responses": {
            "201": {"description": "Accepted", "content": {"application/json": {"schema": _ACCEPTED}}},
        },
    }


def _report() -> dict[str, Any]:
    return {
        "tags": ["training"],
        "operationId": "report",
        "summary": "What one rank of a run has to say",
        "parameters": [_RUN],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("RunReport")}}},
        "responses": {"200": _STOP_VIEW},
    }


def _stop() -> dict[str, Any]:
    numbers = [
        {"name": name, "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER - 1}}
        for name in ("rank", "world_size", "epoch", "step", "steps", "ack_epoch", "ack_step")
    ]
    wait = {"name": "wait_s", "in": "query", "schema": {"type": "number"}, "description": "From 0 to 60 s."}
    return {
        "tags": ["training"],
        "operationId": "await_stop",
        "summary": "Is this run to stop? Answers at once when there is news, else after wait_s",
        "parameters": [_RUN, *numbers, wait],
        "responses": {"200": _STOP_VIEW},
    }


def _lease() -> dict[str, Any]:
    lease = {"description": "Until when", "content": {"application/json": {"schema": _ref("LeaseView")}}}
    return {
        "tags": ["training"],
        "operationId": "renew_lease",
        "summary": "How long the workers of a pod may go on without asking again",
        "parameters": [_RUN],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("LeaseRequest")}}},
        "responses": {"200": lease},
    }


def _files() -> dict[str, Any]:
    return {
        "tags": ["training"],
        "operationId": "files",
        "summary": "The submitted files of the run's job, as one tar",
        "parameters": [_RUN],
        "responses": {"200": {"description": "A tar", "content": {"application/x-tar": {"schema": {}}}}},
    }


_STOP_VIEW = {"description": "Where to stop, if", "content": {"application/json": {"schema": _ref("StopView")}}}
_ACCEPTED = {
    "type": "object",
    "required": ["ids", "jobs", "batch", "notes"],
    "properties": {
        "ids": {"type": "array", "items": {"type": "integer"}},
        "jobs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "name"],
                "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
            },
        },
        "batch": {"type": "string", "description": "Names jobs that were submitted together; empty for one."},
        "notes": {
            "type": "array",
            "items": {"type": "string"},
            "description": "What will not be as one might expect, such as a job that cannot be resized.",
        },
    },
}
_PROBLEM = {
    "type": "object",
    "required": ["title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "problems": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("path", "what", "fix")},
            },
        },
    },
}
