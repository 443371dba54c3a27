"""What is told of a batch, and how its options are read, without a daemon."""

from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from swell.cli.batch import batch
from swell.cli.batch_follow import Follower, NoSuchBatch, found_batch
from swell.cli.batch_results import Results
from swell.cli.batch_run import spread
from swell.client.http import Client


def view(job: int, state: str, **said: Any) -> dict[str, Any]:
    started = None if state in ("queued", "starting") else float(job)
    where = ["gpu1:0"] if state == "running" else []
    shown = {"id": job, "name": f"b.{job}", "state": state, "started_s": started, "where": where, "why": "", **said}
    return {"message": "", "exit_code": None, **shown}


def told(follower: Follower, *views: dict[str, Any]) -> list[str]:
    return [line for line, _ in follower.news(views)]


def test_each_job_is_told_once_as_started_and_once_as_ended() -> None:
    follower = Follower(lines={"b.1": "line 1: train"})
    assert told(follower, view(1, "queued"), view(2, "queued")) == []
    assert told(follower, view(1, "running")) == ["started: b.1; CUDA_VISIBLE_DEVICES=0 on gpu1; line 1: train"]
    assert told(follower, view(1, "running")) == []
    assert told(follower, view(1, "completed")) == ["finished: b.1; line 1: train"]
    assert told(follower, view(1, "completed")) == []
    assert told(follower, view(2, "failed", exit_code=3)) == ["started: b.2", "failed: b.2; exit code 3"]
    assert (follower.failed, follower.summary()) == (1, "1 finished, 1 failed")


def test_a_job_that_never_ran_is_not_told_as_started() -> None:
    follower = Follower()
    assert told(follower, view(1, "cancelled", started_s=None)) == ["cancelled: b.1"]
    assert follower.failed == 1


def test_why_jobs_wait_is_told_when_asked_and_when_it_changes() -> None:
    follower = Follower(verbose=True)
    waits = view(1, "queued", why="no GPU is free")
    assert told(follower, waits) == ["waiting: b.1; no GPU is free"]
    assert told(follower, waits) == []
    assert told(Follower(), waits) == []


@pytest.mark.parametrize(
    ("args", "read"),
    [
        (["f", "--machines", "a", "b"], ["f", "--machines", "a", "--machines", "b"]),
        (["f", "--machines", "a", "--reserve"], ["f", "--machines", "a", "--reserve"]),
        (["--gpus", "2", "f"], ["--gpus", "2", "f"]),
        (["f", "--machines=a", "--results", "x"], ["f", "--machines=a", "--results", "x"]),
    ],
)
def test_several_values_may_stand_behind_one_option(args: list[str], read: list[str]) -> None:
    assert spread(args, {"--machines"}) == read


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["b.sh", "--gpu-utilization", "2"], "from 0 to 1"),
        (["b.sh", "--memory-required", "lots"], "is not a size"),
        (["nothing.sh"], "cannot read nothing.sh"),
        (["b.sh", "--gpus", "0"], "--gpus"),
        (["train.py"], "train.py has no shell command per line; `swell run -- python train.py` runs it"),
        (["jobs.yaml"], "jobs.yaml has no shell command per line; `swell submit jobs.yaml` runs it"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_started(args: list[str], said: str) -> None:
    done = CliRunner().invoke(batch, args)
    assert done.exit_code == 2
    assert said in done.output


def test_a_place_where_no_results_can_go_is_refused_before_any_job_runs_and_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(click.BadParameter, match="file is not a directory"):
        Results(root=tmp_path / "file" / "results").check_place()
    Results(root=tmp_path / "new" / "results").check_place()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


class Jobs:
    """A client that knows two jobs: 7, alone, and 8, of a batch whose name has digits only."""

    def jobs(self, *, batch: str, limit: int) -> tuple[list[dict[str, Any]], None]:
        return [{"id": 8}][: limit if batch == "81594102" else 0], None

    def job(self, ref: str) -> dict[str, Any]:
        return {"7": {"id": 7, "batch": ""}, "8": {"id": 8, "batch": "81594102"}, "last": {"id": 7, "batch": ""}}[ref]


@pytest.mark.parametrize(
    ("ref", "name", "job"), [("81594102", "81594102", 0), ("8", "81594102", 0), ("7", "", 7), ("last", "", 7)]
)
def test_a_batch_is_found_by_its_name_of_digits_by_a_job_and_as_the_last(ref: str, name: str, job: int) -> None:
    found = found_batch(cast(Client, Jobs()), ref)
    assert (found.name, found.job) == (name, job)


def test_a_batch_that_does_not_exist_is_named() -> None:
    with pytest.raises(NoSuchBatch, match="no batch 'nothing'"):
        found_batch(cast(Client, Jobs()), "nothing")
