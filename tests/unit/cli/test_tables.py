import io
import time
from typing import Any

import pytest
from rich.console import Console

from swell.cli.demo import Show
from swell.cli.demo import _table as demo_table
from swell.cli.tables import JOB_HEAD, NARROW_HEAD, eta, gpus, holds, job_head, job_row, node_row, progress, state
from swell.demo.story import STORY


def counted(done: int, total: int, unit: str = "epoch") -> dict[str, Any]:
    return {"unit": unit, "epochs_done": done, "epochs_total": total, "fraction": done / total if total else None}


def job(**changes: Any) -> dict[str, Any]:
    view = {
        "id": 7,
        "name": "train",
        "user": "ada",
        "state": "queued",
        "paused": False,
        "gpus": {"held": 0, "min": 1, "max": 4, "share": False},
        "progress": counted(0, 0),
        "eta_s": None,
        "starts_s": None,
        "waited_s": 65.0,
        "ran_s": 0.0,
        "where": [],
        "why": "needs 4, 2 free",
        "submitted_s": 100.0,
        "ended_s": None,
    }
    return {**view, **changes}


def test_a_line() -> None:
    line = ("7", "train", "ada", "QUEUED", "1-4", "-", "-", "-", "needs 4, 2 free")
    assert job_row(job(), NARROW_HEAD) == line
    times = dict(zip(JOB_HEAD, job_row(job(ended_s=400.0, state="completed", ran_s=200.0)), strict=True))
    assert [times[name] for name in ("WAITED", "RAN", "TOTAL", "ETA")] == ["1m05s", "3m20s", "5m00s", "-"]


def test_a_waiting_job_says_when_it_starts() -> None:
    now = time.time()
    waits = job(starts_s=[now + 600.5, now + 3600.5], eta_s=[now + 7200.0, now + 9000.0])
    assert job_row(waits, JOB_HEAD)[-3] == "starts 10m-1h00m"
    assert job_row(waits, NARROW_HEAD)[-3] == "starts <1h00m"
    soon = job(starts_s=[now + 0.1, now + 0.4])
    assert [job_row(soon, head)[-3] for head in (JOB_HEAD, NARROW_HEAD)] == ["starts <1s", "starts <1s"]
    assert job_head(80) == NARROW_HEAD
    assert job_head(200) == job_head(None) == JOB_HEAD


def test_columns_that_say_little_make_room_for_the_reason() -> None:
    short, long = (
        job(why="needs 4, 2 free"),
        job(why="exit code 1: FileNotFoundError: data/train.bin", where=["gpu1:0,1"]),
    )
    assert job_head(80, [short]) == NARROW_HEAD
    assert job_head(100, [long]) == NARROW_HEAD
    assert set(NARROW_HEAD) - set(job_head(84, [long])) == {"USER"}
    assert set(NARROW_HEAD) - set(job_head(70, [long])) == {"USER", "WHERE"}
    others = {**long, "user": "grace"}
    assert set(NARROW_HEAD) - set(job_head(70, [long, others])) == {"WHERE"}


@pytest.mark.parametrize(
    ("said", "where", "text"),
    [
        ({"held": 2, "min": 1, "max": 4, "share": False}, ["n:0,1"], "2/4"),
        ({"held": 0, "min": 2, "max": 2, "share": False}, [], "2"),
        ({"held": 0, "min": 0, "max": 0, "share": False}, ["n"], "-"),
        ({"held": 1, "min": 1, "max": 1, "share": True}, ["n:0"], "share"),
    ],
)
def test_gpus(said: dict[str, Any], where: list[str], text: str) -> None:
    assert gpus(job(gpus=said, where=where)) == text


def test_states_and_progress() -> None:
    assert state(job(paused=True)) == "PAUSED"
    assert state(job(paused=True, state="stopping")) == "STOPPING"
    assert progress(job(progress=counted(3, 10))) == "3/10"
    assert progress(job(progress=counted(3, 0))) == "epoch 3"
    assert progress(job(progress=counted(1234, 600_000, unit="step"))) == "1.23k/600k steps"
    assert progress(job(progress=counted(999, 300 * 10**9, unit="token"))) == "999/300B tokens"


def test_eta_is_an_interval_unless_it_is_narrow() -> None:
    now = time.time()
    assert eta(job(eta_s=[now + 3600.5, now + 7200.5])) == "1h00m-2h00m"
    assert eta(job(eta_s=[now + 7100.5, now + 7200.5])) == "2h00m"
    assert eta(job(ended_s=1e6, ran_s=65.0)) == "ran 1m05s", "waiting is not running"


@pytest.mark.parametrize("width", [80, 100, 200])
def test_only_the_reason_is_cut_in_the_picture_of_the_demo(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    why = {"where": ["node:0,1"], "why": "a change would cost more than it brings (cost 30 s, gain 12 s)"}
    jobs = {n: job(id=n, name=act.name, user="root", state="running", **why) for n, act in enumerate(STORY, 1)}
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(demo_table(Show(jobs=jobs), 5.0))
    lines = console.export_text().splitlines()[2:]
    assert max(map(len, lines)) <= width
    for line, act in zip(lines, STORY, strict=True):
        assert line.split()[1] == act.name
        assert "RUNNING" in line
    table = demo_table(Show(), 0.0)
    assert not table.rows


def test_holds() -> None:
    held = {"held": 2, "min": 1, "max": 4, "share": False}
    assert holds(job(where=["n:0,1"], gpus=held)) == "2/4 GPUs on n:0,1"
    assert holds(job()) == ""


def test_a_machine() -> None:
    gpu = {"index": 0, "type": "A100", "jobs": [3], "health": "ok", "others": False, "why": ""}
    sick = {**gpu, "index": 1, "jobs": [], "health": "dirty", "why": "memory not free"}
    busy = {**gpu, "index": 2, "jobs": [], "others": True}
    node = {
        "name": "n1",
        "condition": "ready",
        "contact": "here",
        "gpus": [gpu, sick, busy],
        "gpus_free": 0,
        "gpus_total": 3,
        "cpus": 8,
        "memory_mib": 16384,
        "why": "",
    }
    row = node_row(node)
    assert row[:7] == ("n1", "READY", "0/3", "A100", "8", "16GiB", "3")
    assert "GPU 1 dirty: memory not free" in row[7]
    assert "1 of 3 GPUs busy with others' work" in row[7]
