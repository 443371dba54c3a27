"""A SwellJob object: what it asks for as a job file, and what of its job is written into its status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swell.api.views import job_view
from swell.core.state import JobRecord
from swell.jobfile.problems import one

GROUP, VERSION, PLURAL = "swell.dev", "v1", "swelljobs"
FINALIZER = "swell.dev/job"
"""Keeps the object until its job has ended: deleting it cancels the job, also while no daemon runs."""
CLUSTER = "swell/cluster"
"""Annotation: the Swell that has taken the object on. Another one leaves it alone."""
REFUSED, REMOVED = "Refused", "Removed"
_NOT_HERE = {
    "user": "the job belongs to the namespace of its object; leave `user` out",
    "outputs": "the daemon has no directory of yours; write to a volume (`kubernetes: volumes:`)",
    "array": "one SwellJob is one job; apply several objects",
    "sweep": "one SwellJob is one job; apply several objects",
}
_STEP_S = 10
"""Times of a job that goes on are shown in steps of this: each step is a request to the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwellJob:
    namespace: str
    name: str
    uid: str
    version: str  # of the object, for changes that must not overtake another's
    generation: int
    deleted: bool
    cluster: str  # the Swell that has it; empty: none yet
    finalizers: tuple[str, ...]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Of its submission: the same object is the same job, however often it is seen."""
        return f"swelljob/{self.uid}"

    @property
    def job(self) -> int:
        """0: it was not submitted yet."""
        number = self.status.get("job")
        return number if isinstance(number, int) else 0


def swell_job_of(data: Mapping[str, Any]) -> SwellJob:
    meta = data["metadata"]
    spec, status = data.get("spec"), data.get("status")
    return SwellJob(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
        generation=meta.get("generation", 0),
        deleted=meta.get("deletionTimestamp") is not None,
        cluster=(meta.get("annotations") or {}).get(CLUSTER, ""),
        finalizers=tuple(meta.get("finalizers") or ()),
        spec=spec if isinstance(spec, Mapping) else {},
        status=status if isinstance(status, Mapping) else {},
    )


def document_of(found: SwellJob) -> dict[str, Any]:
    """The job file. Its pods run in the namespace of the object and nowhere else: who may create a SwellJob there may
    run pods there. Raises JobFileError."""
    for field, fix in _NOT_HERE.items():
        if field in found.spec:
            raise one(field, "a SwellJob cannot have it", fix)
    pods = found.spec.get("kubernetes") or {}
    if not isinstance(pods, Mapping) or pods.get("namespace", found.namespace) != found.namespace:
        fix = f"leave it out; the pods of this object run in {found.namespace}"
        raise one("kubernetes.namespace", "pods run in the namespace of their SwellJob", fix)
    return {"name": found.name, **found.spec, "kubernetes": {**pods, "namespace": found.namespace}}


def status_of(found: SwellJob, record: JobRecord, now_s: float) -> dict[str, Any]:
    view = job_view(record, why="", eta_s=None, starts_s=None, now_s=now_s)
    live = not record.ended
    total_s = (record.ended_s or now_s) - record.submitted_s
    changed = live and found.status.get("generation", found.generation) != found.generation
    note = "changes of its spec have no effect once it is submitted; delete it and apply it again" if changed else ""
    message = record.message or note
    return {
        "job": record.id,
        "state": record.state.capitalize(),
        "workers": view["gpus"]["held"],
        "waiting": short(view["waited_s"], live=live),
        "running": short(view["ran_s"], live=live),
        "total": short(total_s, live=live),
        "epochs": view["progress"]["epochs_done"],
        "generation": found.status.get("generation", found.generation),
        **({"message": message} if message else {}),  # servers of 1.20 take an empty text for null, and refuse it
    }


def refused(found: SwellJob, why: str) -> dict[str, Any]:
    return {"state": REFUSED, "message": why, "workers": 0, "generation": found.generation}


def short(seconds: float, *, live: bool) -> str:
    """As kubectl writes times: 28s, 5m, 3h, 2d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole - whole % _STEP_S if live else whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 48 * 3600 else f"{whole // 86400}d"
