"""What somebody with only the docs typed in the first hour, and the answers that helped nobody then."""

import json
from pathlib import Path

import pytest

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
