"""What a SwellJob asks for, and what it shows of its job."""

from __future__ import annotations

from typing import Any

import pytest

from swell.core import events as ev
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Part
from swell.jobfile.problems import JobFileError
from swell.swelljobs.resource import SwellJob, document_of, short, status_of, swell_job_of


def swell_job(spec: dict[str, Any], **status: object) -> SwellJob:
    meta = {"name": "mnist", "namespace": "team-a", "uid": "u1", "resourceVersion": "5", "generation": 1}
    return swell_job_of({"metadata": meta, "spec": spec, "status": status})


def test_its_spec_is_a_job_file_whose_pods_run_in_its_own_namespace() -> None:
    asked = document_of(swell_job({"command": "true", "image": "i"}))
    assert asked == {"name": "mnist", "command": "true", "image": "i", "kubernetes": {"namespace": "team-a"}}


@pytest.mark.parametrize(
    "spec",
    [
        {"kubernetes": {"namespace": "kube-system"}},
        {"kubernetes": "all"},
        {"user": "root"},
        {"outputs": ["*.pt"]},
        {"array": 3},
        {"sweep": {"LR": [1]}},
    ],
)
def test_who_may_create_one_gets_no_more_than_pods_in_that_namespace(spec: dict[str, Any]) -> None:
    with pytest.raises(JobFileError):
        document_of(swell_job({"command": "true", **spec}))


def test_its_status_says_what_ls_says() -> None:
    run = RunId(7, 1)
    allocation = Allocation(parts=(Part(node="a", gpus=(0, 1)),), gpu_type="gpu")
    state = replay(
        [
            ev.JobSubmitted(job=7, spec=JobSpec(name="mnist", command=("true",)), at_s=100.0),
            ev.RunPlanned(run=run, allocation=allocation, at_s=128.0),
            ev.RunStarted(run=run, at_s=130.0),
        ]
    )
    shown = status_of(swell_job({}), state.jobs[7], 200.0)
    assert {name: shown[name] for name in ("job", "state", "workers", "waiting", "total")} == {
        "job": 7,
        "state": "Running",
        "workers": 2,
        "waiting": "20s",
        "total": "100s",
    }
    changed = status_of(swell_job({}, job=7, generation=0), state.jobs[7], 200.0)
    assert "delete it and apply it again" in changed["message"]


@pytest.mark.parametrize(
    ("seconds", "live", "text"),
    [
        (28, False, "28s"),
        (28, True, "20s"),
        (300, True, "5m"),
        (7300, True, "2h"),
        (400_000, False, "4d"),
        (-1, True, "0s"),
    ],
)
def test_times_are_written_as_kubectl_writes_them(seconds: float, live: bool, text: str) -> None:
    assert short(seconds, live=live) == text
