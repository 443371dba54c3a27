"""What people do every day with jobs that are there: change, repeat, watch, look into, count. Against a real daemon."""

import json
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from harness import eventually
from integration.cli.conftest import Shell

PATIENCE_S = 60.0


def view(sh: Shell, job: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sh("show", job, "--json").out)
    return found


def until(sh: Shell, job: object, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while (found := view(sh, job))["state"] != state:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def detached(sh: Shell, *args: object) -> int:
    jobs = json.loads(sh("run", "-d", "--json", *args).out)["jobs"]
    return int(jobs[0]["id"])


# -- outputs ----------------------------------------------------------------------------------------------------------


def test_outputs_of_a_failed_job_come_back_and_never_over_something_else(sh: Shell) -> None:
    (sh.work / "job.yaml").write_text(
        "name: train\ngpus: 0\noutputs: [results/, log.txt]\n"
        "command: mkdir -p results; echo $RANDOM_TEXT > results/m.txt; echo x > log.txt; exit 3\n"
    )
    sh("submit", "job.yaml", "--set", "env.RANDOM_TEXT=one")
    first = until(sh, "last", "failed")["id"]
    told = _copied(sh, first)
    assert told["outputs"]["files"] == 2
    assert (sh.work / "results" / "m.txt").read_text() == "one\n"
    assert f"outputs      2 output files copied into {sh.work}" in sh("show", first).out

    sh("submit", "job.yaml", "--set", "env.RANDOM_TEXT=two")
    second = until(sh, "last", "failed")["id"]
    assert _copied(sh, second)["outputs"]["into"] == str(sh.work / f"train-{second}")
    assert (sh.work / "results" / "m.txt").read_text() == "one\n"
    assert (sh.work / f"train-{second}" / "results" / "m.txt").read_text() == "two\n"


def _copied(sh: Shell, job: int) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := view(sh, job))["outputs"]:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_run_says_where_outputs_are_and_that_nothing_matched(sh: Shell) -> None:
    (sh.work / "submitted.txt").write_text("as it is")
    done = sh("run", "--gpus", 0, "--output", "*.txt", "--outputs-to", "out", "--", "echo 1 > new.txt")
    assert f"1 output file copied into {sh.work / 'out'}" in done.err
    assert [path.name for path in (sh.work / "out").iterdir()] == ["new.txt"]
    done = sh("run", "--gpus", 0, "--output", "*.pt", "--", "true")
    assert "outputs were not copied: no file that it wrote matches *.pt" in done.err


# -- changing jobs ----------------------------------------------------------------------------------------------------


def test_update_changes_what_a_waiting_job_asks_for(sh: Shell) -> None:
    job = detached(sh, "--gpus", 4, "--name", "wide", "--", "sleep 600")
    waits = detached(sh, "--gpus", 4, "--name", "waits", "--", "sleep 600")
    until(sh, job, "running")
    sh("update", waits, "gpus=1-2", "time_limit=2h", "priority=high")
    found = view(sh, waits)
    assert (found["gpus"]["min"], found["gpus"]["max"], found["priority"]) == (1, 2, 10)
    assert found["spec"]["time_limit_s"] == 7200.0
    refused = sh("update", job, "gpus=1", code=2).err
    assert "runs on 4 GPUs and cannot be resized: it neither uses the swell library" in refused
    assert (
        "could never run" in sh("update", waits, "gpus=64", code=2).err
        or "64" in sh("update", waits, "gpus=64", code=2).err
    )
    assert "cannot be changed after submit (gpus, time_limit, priority can" in sh("update", job, "image=x", code=2).err
    assert "write FIELD=VALUE" in sh("update", job, "gpus", code=2).err
    sh("cancel", "--now", job)
    until(sh, waits, "running")
    sh("cancel", "--now", waits)
    until(sh, waits, "cancelled")
    assert "has ended (cancelled)" in sh("update", waits, "gpus=1", code=2).err


def test_cancel_now_kills_a_job_that_ignores_being_asked(sh: Shell) -> None:
    job = detached(sh, "--gpus", 0, "--", "trap '' TERM; echo up; while true; do sleep 0.2; done")
    until(sh, job, "running")
    began = time.monotonic()
    sh("cancel", job)
    assert view(sh, job)["state"] in ("stopping", "running")
    sh("cancel", "--now", job)
    until(sh, job, "cancelled")
    assert time.monotonic() - began < 25  # its grace is 30 s


def test_requeue_runs_an_ended_job_again_with_its_files(sh: Shell) -> None:
    sh("run", "--gpus", 0, "--name", "again", "--", "echo line >> seen; cat seen; test $(wc -l < seen) -eq 2", code=1)
    found = view(sh, "again")
    sh("requeue", "again")
    assert until(sh, found["id"], "completed")["attempts"] == 2
    assert "line\nline\n" in sh("logs", "again", "--attempt", 2).out
    job = detached(sh, "--gpus", 0, "--", "sleep 600")
    until(sh, job, "running")
    assert f"swell cancel {job}`, then `swell requeue {job}`" in sh("requeue", job, code=2).err
    sh("cancel", "--now", job)


def test_after_any_and_after_failure(sh: Shell) -> None:
    fails = detached(sh, "--gpus", 0, "--", "exit 4")
    until(sh, fails, "failed")
    assert until(sh, detached(sh, "--gpus", 0, "--after-any", fails, "--", "true"), "completed")
    assert until(sh, detached(sh, "--gpus", 0, "--after-failure", fails, "--", "true"), "completed")
    never = until(sh, detached(sh, "--gpus", 0, "--after", fails, "--", "true"), "cancelled")
    assert never["message"] == f"it depends on job {fails}, which failed"
    done = detached(sh, "--gpus", 0, "--", "true")
    never = until(sh, detached(sh, "--gpus", 0, "--after-failure", done, "--", "true"), "cancelled")
    assert never["message"] == f"it was to run after a failure of job {done}, which completed"


# -- watching and looking into ----------------------------------------------------------------------------------------


def test_attach_shows_the_log_and_the_end(sh: Shell, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = detached(
        sh, "--gpus", 1, "--name", "long", "--", f"echo begun; while [ ! -e {gate} ]; do sleep 0.1; done; exit 7"
    )
    until(sh, job, "running")
    left = sh.start("attach", job)
    assert left.stdout
    assert left.stdout.readline() == b"begun\n"
    left.send_signal(signal.SIGINT)
    _, err = left.communicate(timeout=PATIENCE_S)
    assert left.returncode == 130
    assert f"detached; job {job} goes on" in err.decode()
    stays = sh.start("attach", "long")
    assert stays.stdout
    assert stays.stdout.readline() == b"begun\n"
    gate.touch()
    _, err = stays.communicate(timeout=PATIENCE_S)
    assert stays.returncode == 1
    assert f"job {job} FAILED" in err.decode()
    assert f"job {job}  long  RUNNING  1 GPU on" in err.decode()


def test_exec_runs_beside_a_job_in_its_environment(sh: Shell) -> None:
    job = detached(sh, "--gpus", 2, "-e", "LR=0.1", "--", "echo x > here.txt; sleep 600")
    until(sh, job, "running")
    done = sh("exec", job, "--", "echo $LR $SWELL_GPUS $PWD; ls; exit 5", code=5)
    assert done.out.splitlines() == [f"0.1 2 {sh.home / 'work' / str(job)}", "here.txt"]
    assert sh("exec", job, "--", "printenv", "LR").out == "0.1\n"
    assert "no process 7" in sh("exec", "--rank", 7, job, "--", "true", code=2).err
    sh("cancel", "--now", job)
    until(sh, job, "cancelled")
    assert f"job {job} is cancelled: exec needs one that runs" in sh("exec", job, "--", "true", code=2).err


def test_logs_grep(sh: Shell) -> None:
    sh("run", "--gpus", 0, "--name", "talks", "--", "for i in 1 2 3; do echo loss $i; echo noise; done")
    assert sh("logs", "talks", "--grep", "loss [23]").out == "loss 2\nloss 3\n"
    assert sh("logs", "talks", "--grep", "loss", "-n", 1).out == "loss 3\n"
    assert "not a regular expression" in sh("logs", "talks", "--grep", "(", code=2).err
    assert "--grep does not go with -f" in sh("logs", "-f", "talks", "--grep", "x", code=2).err


def test_logs_since(sh: Shell, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = detached(sh, "--gpus", 0, "--", f"echo old; while [ ! -e {gate} ]; do sleep 0.1; done; echo new; sleep 600")
    until(sh, job, "running")
    eventually(lambda: (sh.home / "runs" / f"{job}.1" / "0" / "log.times").exists(), 30, what="its growth is noted")
    since = datetime.now().isoformat()
    gate.touch()
    eventually(lambda: "new" in sh("logs", job).out, 30, what="it has gone on")
    assert sh("logs", job).out == "old\nnew\n"
    assert sh("logs", job, "--since", since).out == "new\n"
    assert json.loads(sh("logs", job, "--since", since, "--json").out)["text"] == "new\n"
    assert sh("logs", job, "--since", "1h", "-n", 1).out == "new\n"
    followed = sh.start("logs", "-f", "-n", 1, job)
    assert followed.stdout
    assert followed.stdout.readline() == b"new\n"
    followed.send_signal(signal.SIGINT)
    followed.communicate(timeout=PATIENCE_S)
    assert "is not a time" in sh("logs", job, "--since", "yesterday", code=2).err
    assert "no process of rank 7; it has rank 0 only" in sh("logs", job, "--rank", 7, code=2).err
    assert f"job {job} has no attempt 5" in sh("logs", job, "--attempt", 5, code=2).err
    sh("cancel", "--now", job)


def test_a_script_that_is_not_there_is_reported_at_submit(sh: Shell) -> None:
    (sh.work / "train.py").write_text("print('trained')")
    refused = sh("run", "--gpus", 0, "--", "python3", "trian.py", code=2).err
    assert f"the job runs trian.py, which is not in {sh.work}; did you mean train.py?" in refused
    (sh.work / "job.yaml").write_text("command: python3 trian.py\ngpus: 0\n")
    assert "job.yaml: the job runs trian.py" in sh("submit", "job.yaml", code=2).err
    assert "job.yaml: the job runs trian.py" in sh("submit", "--dry-run", "job.yaml", code=2).err
    assert sh("run", "--gpus", 0, "--", "python3", "train.py").out == "trained\n"


def test_dry_run_says_where_and_when_and_submits_nothing(sh: Shell) -> None:
    before = json.loads(sh("ls", "-a", "--json").out)
    (sh.work / "train.py").write_text("1")
    (sh.work / "job.yaml").write_text("name: small\ncommand: python train.py\ngpus: 1-2\n")
    done = sh("submit", "--dry-run", "job.yaml")
    assert done.out.splitlines()[0].split("  ")[0] == "NAME"
    assert "yes" in done.out.splitlines()[1]
    assert done.out.splitlines()[-1].startswith("nothing was submitted")
    (sh.work / "job.yaml").write_text("name: large\ncommand: python train.py\ngpus: 64\n")
    done = sh("submit", "--dry-run", "job.yaml", code=1)
    assert "no" in done.out.splitlines()[1].split()
    (sh.work / "job.yaml").write_text("name: wrong\ncommand: python train.py\ngpu: 1\n")
    assert "write gpus: 1" in sh("submit", "--dry-run", "job.yaml", code=2).err
    assert json.loads(sh("ls", "-a", "--json").out) == before


# -- counting ---------------------------------------------------------------------------------------------------------


def test_history_and_stats_count_what_ran(sh: Shell) -> None:
    sh("run", "--gpus", 1, "--name", "counted", "--team", "vision", "--", "sleep 0.3")
    sh("run", "--gpus", 0, "--name", "counted-too", "--", "exit 3", code=1)
    lines = json.loads(sh("history", "--json", "--name", "counted*").out)
    assert [(line["name"], line["state"]) for line in lines] == [("counted-too", "failed"), ("counted", "completed")]
    assert lines[1]["gpu_s"] > 0.2
    head, *rows = sh("history", "--csv", "--name", "counted*").out.splitlines()
    assert head.startswith("id,name,user,team,state,gpus_min,gpus_max,submitted_at")
    assert [row.split(",")[1] for row in rows] == ["counted-too", "counted"]
    teams = {line["team"]: line for line in json.loads(sh("history", "--by", "team", "--json").out)}
    assert teams["vision"]["completed"] == 1
    assert teams["vision"]["gpu_hours"] > 0
    assert "no job in this time" in sh("history", "--until", "2001-01-01").out
    assert "is not a time" in sh("history", "--since", "yesterday", code=2).err
    found = json.loads(sh("stats", "--json").out)
    assert found["jobs"]["completed"] >= 1
    assert 0 < found["gpus"]["utilisation"] <= 1
    assert "of the time in use" in sh("stats").out
