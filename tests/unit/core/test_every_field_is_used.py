"""A field of the job spec that nothing reads is a promise to users that nobody keeps.

Reading is: `spec.field` (or `request.field`, `roles.field`, …) outside the files that carry the spec from the job file
to the record. The other way round, each field can be written in a job file, and what is written there is carried on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import BaseModel

import swell
from swell.core.job import GpuRequest, JobSpec, Mount, PodOptions, PodVolume, Roles
from swell.jobfile.pods import PodOptionsModel, PodVolumeModel
from swell.jobfile.schema import Gpus, JobModel, MountModel, RolesModel

SOURCE = Path(swell.__file__).parent
OWNERS = {
    JobSpec: ("spec", "self"),
    GpuRequest: ("gpus", "request", "self"),
    Roles: ("roles",),
    Mount: ("mount", "m"),
    PodOptions: ("options", "kubernetes"),
    PodVolume: ("volume",),
}
"""What values of each kind are called where they are read; `self` only in the class itself."""
FILLED_BY_SWELL: frozenset[str] = frozenset({"unit"})
"""Fields that are worked out at submit from others."""
OTHER_NAMES = {
    "memory_mib": "memory",
    "node_labels": "labels",
    "estimated_s": "estimated_hours",
    "progress_patterns": "progress",
    "backoff_s": "backoff",
    "time_limit_s": "time_limit",
    "grace_s": "grace",
    "deadline_s": "deadline",
    "array_index": "array",
    "array_parameters": "sweep",
    "allowed": "sizes",
    "utilisation_milli": "utilisation",
    "server_command": "command",
}
"""By which name a field is written in a job file, where that is another."""


def reads() -> dict[str, set[str]]:
    """Names of attributes that are read, by what they are read of."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "jobfile":
            continue
        for of, name in _attributes(ast.parse(path.read_text(encoding="utf-8"))):
            if of != "self" or path.name == "job.py":
                found.setdefault(of, set()).add(name)
    return found


def _attributes(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Those that are read: of what, and their names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            of = node.value
            yield of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else "", node.attr


READS = reads()


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, field.name) for kind in OWNERS for field in fields(kind)], ids=lambda v: str(v)
)
def test_every_field_is_read_somewhere(kind: type, name: str) -> None:
    assert any(name in READS.get(owner, ()) for owner in OWNERS[kind]), (
        f"nothing reads {kind.__name__}.{name}: use it, or refuse it in plan.admit, or remove it"
    )


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        *((JobSpec, JobModel), (GpuRequest, Gpus), (Roles, RolesModel), (Mount, MountModel)),
        *((PodOptions, PodOptionsModel), (PodVolume, PodVolumeModel)),
    ],
)
def test_every_field_can_be_written_in_a_job_file(kind: type, model: type[JobModel]) -> None:
    names = [OTHER_NAMES.get(field.name, field.name) for field in fields(kind) if field.name not in FILLED_BY_SWELL]
    assert [name for name in names if name not in model.model_fields] == []


CARRIERS: dict[type[BaseModel], tuple[str, ...]] = {
    JobModel: ("model",),
    Gpus: ("self",),
    RolesModel: ("roles",),
    MountModel: ("m",),
    PodOptionsModel: ("self",),
}
"""What values of each kind are called where `jobfile` turns them into a spec."""


def carried() -> dict[str, set[str]]:
    """As `reads`, in `jobfile` without its checks: what is checked and then dropped is ignored all the same."""
    found: dict[str, set[str]] = {}
    for path in (SOURCE / "jobfile").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
        for function in functions:
            if not function.name.startswith("_check"):
                for of, name in _attributes(function):
                    found.setdefault(of, set()).add(name)
    return found


CARRIED = carried()


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in CARRIERS for name in kind.model_fields], ids=lambda v: str(v)
)
def test_every_field_of_a_job_file_reaches_the_spec(kind: type[BaseModel], name: str) -> None:
    assert any(name in CARRIED.get(owner, ()) for owner in CARRIERS[kind]), (
        f"jobfile drops {kind.__name__}.{name}: hand it to the spec in jobfile.expand, or remove it"
    )


def test_a_field_that_nothing_reads_would_be_noticed() -> None:
    assert not any("colour" in READS.get(owner, ()) for owner in OWNERS[JobSpec])
