"""A job file that is written from a spec makes the same spec."""

from dataclasses import fields, replace

import pytest

from swell.core.job import (
    GpuRequest,
    IfUnreachable,
    JobSpec,
    Launcher,
    Mount,
    PodOptions,
    PodVolume,
    Preemptible,
    RestartPolicy,
    Roles,
)
from swell.jobfile.expand import expand
from swell.jobfile.problems import JobFileError
from swell.jobfile.written import OF_ONE_SUBMISSION, document_of

USUAL = JobSpec(name="job", command=("/bin/sh", "-c", "python train.py"))
UNUSUAL = JobSpec(
    name="llm",
    command=("python", "train.py", "--lr", "0.1"),
    team="language",
    gpus=GpuRequest(
        min=2,
        max=8,
        start=4,
        allowed=(2, 4, 8),
        types=("A100", "H100"),
        prefer=("H100",),
        exclude=("V100",),
        memory_mib=6144,
    ),
    cpus=4,
    memory_mib=2048,
    node_labels={"zone": "a"},
    nodes=("n1", "n2"),
    image="pytorch:2.13",
    env={"A": "1"},
    shell_env={"PATH": "/opt/bin"},
    python="python3.12",
    workdir="/data/project",
    files="0" * 64,
    mounts=(Mount(source="/data", target="/in", read_only=True),),
    kubernetes=PodOptions(namespace="research", volumes=(PodVolume(mount="/in", claim="data", read_only=True),)),
    ports={"8080": "80"},
    launcher=Launcher.PS,
    roles=Roles(servers=2, server_command=("python", "serve.py")),
    priority=10,
    weight=2.0,
    epochs=600_000,
    unit="step",
    batch_size=480,
    dataset_size=1000,
    estimated_s=5400.0,
    family="gpt",
    adaptive_batch=True,
    checkpoint_dir="/data/checkpoints",
    copy_checkpoints=False,
    if_unreachable=IfUnreachable.WAIT,
    may_idle=True,
    uses_library=True,
    progress_patterns=(r"round (?P<epoch>\d+)",),
    preemptible=Preemptible.RESTART,
    restart=RestartPolicy.NEVER,
    retries=3,
    backoff_s=60.0,
    time_limit_s=7200.0,
    grace_s=90.0,
    outputs=("results/",),
    outputs_to="/data/results",
)


def test_nothing_of_an_unusual_job_is_lost() -> None:
    assert expand(document_of(UNUSUAL)) == [UNUSUAL]


def test_every_field_is_tried() -> None:
    """A new field of the spec must be written, or be said to belong to one submission."""
    same = {field.name for field in fields(JobSpec) if getattr(UNUSUAL, field.name) == getattr(USUAL, field.name)}
    assert same == OF_ONE_SUBMISSION | {"secrets"}  # below


def test_a_usual_job_is_short() -> None:
    assert document_of(USUAL) == {"name": "job", "command": "python train.py"}


@pytest.mark.parametrize(
    "gpus",
    [
        GpuRequest(min=0, max=0),
        GpuRequest(min=4, max=4),
        GpuRequest(min=1, max=8),
        GpuRequest(share=True, memory_mib=6144, utilisation_milli=250),
    ],
)
@pytest.mark.parametrize("unit", ["epoch", "step", "token", "sample"])
def test_sizes_and_units(gpus: GpuRequest, unit: str) -> None:
    spec = replace(USUAL, gpus=gpus, epochs=7, unit=unit)
    assert expand(document_of(spec)) == [spec]


def test_values_of_secrets_are_left_out_and_asked_for() -> None:
    spec = replace(USUAL, env={"KEY": "hunter2", "A": "1"}, secrets=("KEY",))
    assert "hunter2" not in str(document_of(spec))
    with pytest.raises(JobFileError, match="KEY has no value"):
        expand(document_of(spec))


def test_an_element_of_an_array_is_written_with_its_values() -> None:
    spec = expand({"name": "sweep", "command": "train --seed ${index}", "array": 3})[2]
    again = expand(document_of(spec))
    assert again == [replace(spec, array_index=-1)]
