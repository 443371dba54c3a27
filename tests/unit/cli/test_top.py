"""What `top` shows of many jobs in a small window."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from swell.cli.top import look
from swell.cli.top_keys import View, press
from swell.cli.top_picture import job_picture, log_picture, node_line, picture, shown_jobs
from unit.cli.test_ls import job


class Client:
    def jobs(self, *, state: str, **_: object) -> tuple[list[dict[str, Any]], None]:
        waiting = [job(n, "queued", "n" * 60) for n in range(120, 100, -1)]
        made = {"running": [job(100001, "running")], "queued": waiting}
        return made.get(state, [job(7, "completed", ended_s=1.0)]), None

    def get(self, path: str) -> dict[str, Any]:
        return {"nodes": []} if path.endswith("nodes") else {"policy": "swell", "jobs": {}}


def test_running_comes_first_ids_are_whole_and_the_rest_is_counted() -> None:
    console = Console(width=80, height=12, record=True, force_terminal=False)
    console.print(picture(look(Client()), View(), 13))  # type: ignore[arg-type]
    lines = console.export_text().splitlines()
    ids = [line.split()[0] for line in lines[2:-2]]
    assert ids == ["100001", *map(str, range(101, 107))]
    assert lines[-2] == "+15 more"
    assert lines[-1].startswith("q leave  s sort  / filter")


def test_a_picture_that_nobody_watches_offers_no_keys() -> None:
    console = Console(width=80, height=12, record=True, force_terminal=True)
    console.print(picture(look(Client()), None, 13))  # type: ignore[arg-type]
    drawn = console.export_text(styles=True)
    assert "+15 more" in drawn
    assert "q leave" not in drawn
    assert "\x1b[7m" not in drawn  # no job is chosen


def pressed(*keys: str, jobs: int = 5) -> View:
    view = View()
    for key in keys:
        view = press(view, key, jobs)
    return view


def test_keys() -> None:
    assert pressed("q").left
    assert pressed("s").sort == "gpus"
    assert pressed(*["s"] * 7).sort == "state"
    assert pressed("j", "\x1b[B", "\x1b[A").chosen == 1
    assert pressed(*["j"] * 9).chosen == 4
    assert pressed("k").chosen == 0
    assert pressed("\r").page == "job"
    assert pressed("\r", "l").page == "log"
    assert pressed("l", "\x1b").page == "list"
    assert pressed("l", "q") == View()  # back, not out
    assert pressed("\r", jobs=0).page == "list"


def test_a_filter_is_typed_and_q_is_a_letter_of_it() -> None:
    view = pressed("/", "s", "e", "q", "x", "\x7f")
    assert (view.filter, view.typing) == ("seq", True)
    assert pressed("/", "a", "\r").filter == "a"
    assert pressed("/", "a", "\x1b") == View()
    assert pressed("/", "a", "\r", "\x1b") == View()


def test_what_is_shown_follows_filter_and_order() -> None:
    jobs = [job(1, "running", "resnet", ran_s=5.0), job(2, "queued", "bert", waited_s=9.0), job(3, "queued", "resnet")]
    assert [j["id"] for j in shown_jobs(jobs, View(filter="RES"))] == [1, 3]
    assert [j["id"] for j in shown_jobs(jobs, View(sort="waited"))] == [2, 1, 3]
    assert [j["id"] for j in shown_jobs(jobs, View(filter="queued"))] == [2, 3]


def test_a_machine_shows_what_of_it_is_held() -> None:
    gpus = [{"jobs": [1], "health": "ok", "others": False}, {"jobs": [], "health": "ok", "others": False}]
    counts = {"gpus_total": 2, "gpus_free": 1, "cpus": 6, "cpus_held": 3, "memory_mib": 16384, "memory_held_mib": 2048}
    line = node_line({"name": "vm", "gpus": gpus, **counts})
    assert line == "vm               [B.] GPUs 1/2  CPUs 3/6  memory 2/16 GiB in use  B=1"


def test_a_job_and_its_log_fill_one_screen() -> None:
    console = Console(width=80, height=12, record=True, force_terminal=False)
    spec = {"spec": {"command": ["python", "train.py"]}, "metrics": {"loss": 0.5}, "message": ""}
    console.print(job_picture({**job(1, "running", "resnet"), **spec}, 12))
    console.print(log_picture(job(1, "running", "resnet"), "".join(f"line {n}\n" for n in range(99)), 12))
    said = console.export_text().splitlines()
    assert said[0] == "job          1  resnet"
    assert "loss=0.5" in "\n".join(said)
    assert said[-2:] == ["line 98", "Esc back  Enter job"]
    assert "line 89" not in "\n".join(said)
