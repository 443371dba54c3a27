"""What somebody with only the docs typed in the first hour, and the answers that helped nobody then."""

import json
from pathlib import Path

import pytest

from harness import eventually
from integration.cli.conftest import Shell


@pytest.fixture(autouse=True)
def project(sh: Shell) -> Path:
    (sh.work / "train.py").write_text("print('epoch 1/1 loss 0.5')\n")
    return sh.work


def test_a_script_without_python_is_refused_with_what_to_write(sh: Shell) -> None:
    assert "write python train.py" in sh("run", "train.py", code=2).err
    assert "write python ./train.py" in sh("run", "--", "./train.py", code=2).err
    assert "no program pyhton on your PATH; did you mean python" in sh("run", "-d", "pyhton", "train.py", code=2).err
    assert "no program hours on your PATH" in sh("run", "--time-limit", "2", "hours", "--", "python", code=2).err
    assert "gpus: 'all' is not a number of GPUs" in sh("run", "--gpus", "all", "train.py", code=2).err
    (sh.work / "job.yaml").write_text("command: train.py --lr 1\ngpus: 0\n")
    assert "job.yaml: train.py is a file here" in sh("submit", "job.yaml", code=2).err


def test_wrong_fields_are_told_with_file_and_line_also_where_the_script_is_missing(sh: Shell) -> None:
    (sh.work / "job.yaml").write_text("command: python trian.py\n\ngpu: 2\ntime_limit: forever\n")
    for verb in (("submit",), ("submit", "--dry-run")):
        said = sh(*verb, "job.yaml", code=2).err
        assert "job.yaml, line 3: gpu: there is no such field (write gpus: 2)" in said
        assert "job.yaml, line 4: time_limit: 'forever' is not a duration" in said
        assert said.index("line 3") < said.index("line 4")
    (sh.work / "job.yaml").write_text("name: a\ncommand: 'true'\n---\nname: b\ncommand: 'true'\ncolor: red\n")
    assert "job.yaml, line 6: color: there is no such field" in sh("submit", "job.yaml", code=2).err
    (sh.work / "job.yaml").write_text("command: 'true'\n")
    assert "--set gpuss: there is no such field" in sh("submit", "job.yaml", "--set", "gpuss=2", code=2).err
    said = sh("submit", "-", stdin=b"command: 'true'\nretries: -1\n", code=2).err
    assert "standard input, line 2: retries" in said


def test_a_dry_run_lets_a_job_wait_for_one_of_the_same_file(sh: Shell) -> None:
    (sh.work / "jobs.yaml").write_text(
        "name: first\ncommand: sleep 9\ngpus: 0\nestimated_hours: 1\n---\n"
        "name: second\ncommand: 'true'\ngpus: 0\nestimated_hours: 1\ndepends_on: [first]\n"
    )
    first, second = json.loads(sh("submit", "--dry-run", "--json", "jobs.yaml").out)["jobs"]
    assert first["starts_in_s"] < 60
    assert second["starts_in_s"] >= first["ends_in_s"] - 1


def test_a_file_whose_jobs_stand_in_the_wrong_order_is_refused_whole(sh: Shell) -> None:
    (sh.work / "jobs.yaml").write_text(
        "name: other\ncommand: 'true'\n---\nname: late\ncommand: 'true'\ndepends_on: [early]\n---\n"
        "name: early\ncommand: 'true'\n"
    )
    assert "'early' comes later in the same request (put it first)" in sh("submit", "jobs.yaml", code=2).err
    assert json.loads(sh("ls", "--all", "--json", "--name", "other").out) == []


def test_a_file_that_a_failed_job_asked_for_and_was_left_out_is_named(sh: Shell) -> None:
    (sh.work / "data").mkdir()
    (sh.work / "data" / "big.bin").write_text("1")
    (sh.work / ".swellignore").write_text("data\n")
    (sh.work / "train.py").write_text("open('data/' + 'big.bin')\n")
    said = sh("run", "--gpus", 0, "--", "python3", "train.py", code=1).err
    assert "note: data/big.bin is here, but was left out of the snapshot" in said
    assert "--include data/big.bin" in said
    shown = sh("show", "last").out
    assert "data/big.bin is here, but was left out" in shown
    assert shown.count("FileNotFoundError") == 2  # of the job, of its run
    assert sh("run", "--gpus", 0, "--include", "data", "--", "python3", "train.py").err.count("note:") == 0
    assert (
        "--include dta (include: in a job file) takes nothing"
        in sh("run", "--gpus", 0, "--include", "dta", "--", "python3", "train.py", code=1).err
    )


def test_the_answer_of_resume_update_and_priority_is_of_now(sh: Shell) -> None:
    (sh.work / "train.py").write_text(
        "import swell, time\n"
        "with swell.training(epochs=600) as run:\n"
        "    for epoch in run.epochs():\n"
        "        time.sleep(0.5)\n"
        "        run.save({})\n"
    )
    sh("run", "-d", "--name", "steady", "--gpus", "1-2", "--uses-library", "--", "python3", "train.py")
    eventually(lambda: "RUNNING" in sh("ls", "--name", "steady").out, timeout_s=60.0)
    assert "now gpus 1" in sh("update", "steady", "gpus=1").out
    assert "stops at its next checkpoint, then is held" in sh("pause", "st[e]ady").out
    said = sh("resume", "steady").out
    assert "paused" not in said
    assert "then goes on: it was resumed" in said or "STOPPING" not in said
    refused = sh("priority", "steady", "hihg", code=2).err
    assert "write low, normal, high, urgent or a whole number" in refused
    assert "/v1" not in refused
    assert "job steady" not in sh("events", "--job", "steady").err
    sh("cancel", "--now", "steady")
    assert "COMPLETED" not in sh("wait", "stead?", code=1).err
    assert "no job of that kind has a name like 'nosuch-*'" in sh("wait", "nosuch-*", code=2).err


def test_words_of_others_lead_to_ours(sh: Shell) -> None:
    for word in ("ps", "jobs"):
        assert sh(word, "--name", "nobody-s").out == sh("ls", "--name", "nobody-s").out
