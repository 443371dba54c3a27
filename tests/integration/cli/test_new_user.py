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


def test_what_the_library_saved_is_named_and_brought(sh: Shell) -> None:
    (sh.work / "train.py").write_text(
        "import swell\nwith swell.training(epochs=2) as run:\n    for epoch in run.epochs():\n        run.save(epoch)\n"
    )
    said = sh("run", "--name", "saver", "--uses-library", "--", "python3", "train.py").err
    assert "--checkpoints" in said.splitlines()[-1]
    assert "--checkpoints" in sh("fetch", "saver", code=2).err, "it wrote no other file"
    assert "checkpoints  " in sh("show", "saver").out
    sh("fetch", "saver", "--checkpoints", "--into", "saved")
    kept = json.loads(sh("fetch", "saver", "--checkpoints", "--list", "--json").out)
    assert {path.name for path in (sh.work / "saved").iterdir()} == set(kept["files"]) != set()
    sh("run", "--name", "none", "--gpus", 0, "--", "true")
    assert "no checkpoints of job" in sh("fetch", "none", "--checkpoints", code=2).err


def test_a_job_that_could_never_run_is_named_with_its_file(sh: Shell) -> None:
    (sh.work / "job.yaml").write_text("command: 'true'\ncpus: 4000\n")
    assert sh("submit", "job.yaml", code=2).err.startswith("swell: job.yaml: one worker needs 4000 CPUs")
    (sh.work / "job.yaml").write_text("name: fits\ncommand: 'true'\n---\nname: huge\ncommand: 'true'\ncpus: 4000\n")
    assert "job huge: one worker needs 4000 CPUs" in sh("submit", "job.yaml", code=2).err
    assert json.loads(sh("ls", "--all", "--json", "--name", "fits").out) == []


def test_what_only_this_machine_knows_is_told_with_file_and_line(sh: Shell) -> None:
    (sh.work / "job.yaml").write_text("command: 'true'\npython: /no/such\n")
    assert "job.yaml, line 2: python: there is no interpreter '/no/such' here" in sh("submit", "job.yaml", code=2).err
    (sh.work / "job.yaml").write_text("command: echo hi\nworkdir: nosuch\n")
    said = sh("submit", "job.yaml", code=2).err
    assert "job.yaml: workdir: there is no directory 'nosuch' in" in said
    (sh.work / "job.yaml").write_text("name: a-${i}\ncommand: 'true'\narray: 2\nsweep: {i: [1]}\n")
    assert "job.yaml, line 4: sweep: array and sweep do not go together" in sh("submit", "job.yaml", code=2).err


def test_a_value_of_a_megabyte_does_not_fill_the_screen(sh: Shell) -> None:
    (sh.work / "job.yaml").write_text("command: 'true'\n" + "".join(f"{field}: {'x' * 90_000}\n" for field in LONG))
    said = sh("submit", "job.yaml", code=2).err
    assert len(said) < 400 * len(LONG)
    assert "line 2: gpus" in said
    for field in ("python", "script", "workdir", "name", "image"):
        line = "" if field == "script" else "command: 'true'\n"
        (sh.work / "job.yaml").write_text(f"{line}{field}: {'x' * 90_000}\n")
        assert len(sh("submit", "job.yaml", code=None).err) < 1000, field


LONG = ("gpus", "memory", "time_limit", "priority", "launcher", "array", "deadline", "retries", "workdir")


def test_jobs_of_a_trial_may_wait_for_each_other(sh: Shell) -> None:
    (sh.work / "jobs.yaml").write_text(
        "name: first-t\ncommand: sleep 9\ngpus: 0\nestimated_hours: 1\n---\n"
        "name: second-t\ncommand: 'true'\ngpus: 0\nestimated_hours: 1\ndepends_on: [first-t]\ninclude: [data]\n"
    )
    jobs = {
        job["name"]: job["after"] for job in json.loads(sh("what-if", "--submit", "jobs.yaml", "--json").out)["jobs"]
    }
    assert jobs["second-t"]["starts_in_s"] >= jobs["first-t"]["ends_in_s"] - 1
    (sh.work / "jobs.yaml").write_text("command: 'true'\ngpu: 2\n")
    assert "jobs.yaml, line 2: gpu: there is no such field" in sh("what-if", "--submit", "jobs.yaml", code=2).err


def test_a_job_that_waits_for_gpus_is_told_a_change_that_keeps_its_place(sh: Shell) -> None:
    sh("run", "-d", "--gpus", 3, "--name", "holder", "--", "sleep 60")
    eventually(lambda: "RUNNING" in sh("ls", "--name", "holder").out, timeout_s=60.0)
    sh("run", "-d", "--gpus", 2, "--name", "wants-two", "--", "true")
    job = json.loads(sh("show", "wants-two", "--json").out)["id"]
    advised = f"swell update {job} gpus=1"
    told = f"ask for 1 GPU instead of 2: {advised}; it starts at once"
    eventually(lambda: told in sh("explain", "wants-two").out, timeout_s=30.0)  # worked out beside the daemon
    sh(*advised.split()[1:])
    sh("wait", job)
    sh("run", "-d", "--gpus", 0, "--after-failure", "holder", "--name", "tidy", "--", "true")
    holder = json.loads(sh("show", "holder", "--json").out)["id"]
    assert f"runs if job {holder} does not complete" in sh("explain", "tidy").out
    sh("cancel", "--now", "holder")
    sh("wait", "tidy")


def test_options_of_a_policy_are_set_as_the_docs_say(sh: Shell) -> None:
    assert "price=2" in sh("policy", "swell", "price=2").out
    assert "price=3" in sh("policy", "price=3").out
    assert "has no option 'nosuch'" in sh("policy", "swell", "nosuch=1", code=2).err
    assert "has no value; write KEY=VALUE" in sh("policy", "swell", "price", code=2).err
    assert "price" not in sh("policy", "swell").out


def test_words_that_are_no_job_are_answered_as_such(sh: Shell) -> None:
    for ref in ("a/b", "../x", "99999999999999999999"):
        said = sh("show", ref, code=2).err
        assert "there is no job" in said
        assert ref in said
        assert "/v1" not in said
    for verb in (("priority", "9", "5000"), ("update", "9", "priority=5000")):
        assert "must be less than or equal to 1000" in sh(*verb, code=2).err
    assert "(gpus, time_limit, priority can); submit" in sh("update", "9", "color=red", code=2).err
    assert "did you mean gpus?" in sh("update", "9", "gpu=2", code=2).err
    assert "no job is like that" in sh("ls", "--name", "nobody-has-this-name").out
    sh("run", "-d", "--gpus", 0, "--name", "sleeper", "--", "sleep 60")
    assert "not ended after 1s" in sh("wait", "sleeper", "--timeout", 1, code=124).err
    sh("cancel", "--now", "sleeper")


def test_events_begin_with_as_many_as_were_asked_for(sh: Shell) -> None:
    job = sh("run", "-d", "--gpus", 0, "--", "true").out.split()[1]
    sh("wait", job)
    assert sh("events", "-n", 0).out == ""
    assert len(sh("events", "-n", 2).out.splitlines()) == 2
    lines = sh("events", "--job", job).out.splitlines()
    assert len(lines) > 2
    assert sh("events", "--job", job, "-n", 2).out.splitlines() == lines[-2:]


def test_a_level_below_zero_is_no_option(sh: Shell) -> None:
    job = sh("run", "-d", "--gpus", 0, "--", "sleep", "600").out.split()[1]
    assert "priority -5" in sh("priority", job, "-5").out
    assert json.loads(sh("priority", job, "-7", "--json").out)[0]["priority"] == -7
    sh("cancel", job, "--now")


def test_last_is_a_job_to_wait_for_too(sh: Shell) -> None:
    job = sh("run", "-d", "--gpus", 0, "--", "true").out.split()[1]
    after = sh("run", "-d", "--gpus", 0, "--after", "last", "--", "true").out.split()[1]
    assert json.loads(sh("show", after, "--json").out)["spec"]["depends_on"] == [int(job)]


def test_a_dry_run_of_rm_fails_where_rm_would(sh: Shell) -> None:
    assert "would not remove: there is no job 999999" in sh("rm", "999999", "--dry-run", code=2).err


def test_a_name_that_nobody_can_have_is_answered_with_what_a_name_has(sh: Shell) -> None:
    assert (
        "name: 'an a' is not a name Swell can use; a name has letters, digits" in sh("user", "add", "an a", code=2).err
    )


def test_a_deadline_that_is_past_is_noted(sh: Shell) -> None:
    (sh.work / "job.yaml").write_text("command: 'true'\ngpus: 0\ndeadline: 2020-01-01T00:00\n")
    done = sh("submit", "job.yaml")
    assert "note: its deadline is past" in done.out + done.err
    (sh.work / "job.yaml").write_text("command: 'true'\ngpus: 0\ndeadline: 8h\n")
    done = sh("submit", "job.yaml")
    assert "deadline" not in done.out + done.err
