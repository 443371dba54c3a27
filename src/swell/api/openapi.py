"""OpenAPI entries of the plain Starlette routes, which FastAPI does not see."""

from __future__ import annotations

from typing import Any

import msgspec

from swell.daemon.reports import RunReport, StopView
from swell.jobfile.schema import JobModel

_REF = "#/components/schemas/{name}"
_RUN = {"name": "run", "in": "path", "required": True, "schema": {"type": "string"}, "example": "7.2"}


def add_plain_routes(document: dict[str, Any]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(_job_schemas())
    schemas.update(msgspec.json.schema_components([RunReport, StopView], ref_template=_REF)[1])
    schemas["Problem"] = _PROBLEM
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    document["paths"].setdefault("/v1/jobs", {})["post"] = _submit()
    document["paths"]["/v1/runs/{run}/report"] = {"post": _report()}
    document["paths"]["/v1/runs/{run}/stop"] = {"get": _stop()}


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
            **_REFUSED,
        },
    }


def _report() -> dict[str, Any]:
    return {
        "tags": ["training"],
        "operationId": "report",
        "summary": "What one rank of a run has to say",
        "parameters": [_RUN],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("RunReport")}}},
        "responses": {"200": _STOP_VIEW, **_REFUSED},
    }


def _stop() -> dict[str, Any]:
    numbers = [
        {"name": name, "in": "query", "schema": {"type": "integer", "minimum": 0}}
        for name in ("rank", "world_size", "epoch", "step", "steps", "ack_epoch", "ack_step")
    ]
    wait = {"name": "wait_s", "in": "query", "schema": {"type": "number", "minimum": 0, "maximum": 60}}
    return {
        "tags": ["training"],
        "operationId": "await_stop",
        "summary": "Is this run to stop? Answers at once when there is news, else after wait_s",
        "parameters": [_RUN, *numbers, wait],
        "responses": {"200": _STOP_VIEW, **_REFUSED},
    }


_STOP_VIEW = {"description": "Where to stop, if", "content": {"application/json": {"schema": _ref("StopView")}}}
_ACCEPTED = {
    "type": "object",
    "required": ["ids", "jobs", "batch"],
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
_REFUSED = {"4XX": {"description": "Refused", "content": {"application/problem+json": {"schema": _ref("Problem")}}}}
