"""Declared slots: what was said holds, also after a restart, and what `up` prints is what is there."""

import json
import os

from harness import eventually
from integration.cli.conftest import Shell


def slots(shell: Shell) -> int:
    (node,) = json.loads(shell("up", "--json").out)["nodes"]
    return sum(gpu["health"] == "ok" for gpu in node["gpus"])


def test_what_was_declared_is_kept_over_restarts(alone: Shell) -> None:
    assert ": 3 slots, no NVIDIA driver" in alone("up", "--gpus", 3).out
    alone("down")
    assert ": 3 slots, no NVIDIA driver" in alone("up").out
    alone("down")
    assert ": 1 slot, no NVIDIA driver" in alone("up", "--gpus", 1).out
    assert "no GPU found" in alone("up", "--gpus", "auto").out
    alone("down")
    assert "no GPU found" in alone("up").out


def test_a_running_daemon_gets_more_at_once_and_fewer_as_they_come_free(alone: Shell) -> None:
    alone("up", "--gpus", 1)
    alone("run", "-d", "--gpus", 2, "--", "true", code=2)
    assert ": 2 slots" in alone("up", "--gpus", 2).out
    assert alone("run", "--gpus", 2, "--", "echo", "runs").out == "runs\n"
    alone("run", "-d", "--gpus", 2, "--name", "holds", "--", "until [ -e go ]; do sleep 0.1; done")
    eventually(lambda: json.loads(alone("show", "holds", "--json").out)["state"] == "running", 20, every_s=0.1)
    assert ": 1 slot (1 more until their jobs end)" in alone("up", "--gpus", 1).out
    job = json.loads(alone("show", "holds", "--json").out)
    assert (job["state"], job["gpus"]["held"]) == ("running", 2), "nobody's job is stopped for it"
    (alone.home / "work" / str(job["id"]) / "go").touch()
    assert alone("logs", "-f", "holds").err.count("COMPLETED") == 1
    eventually(lambda: ": 1 slot, no NVIDIA driver" in alone("up").out, 20, every_s=0.2)


def test_the_first_run_on_a_machine_without_gpus_has_a_slot_per_core_and_says_so(alone: Shell) -> None:
    done = alone("run", "--gpus", 1, "--", "echo", "hi")
    assert done.out == "hi\n"
    cores = len(os.sched_getaffinity(0))
    assert f"{cores} slot" in done.err
    assert "one per core" in done.err
    assert slots(alone) == cores
    assert "one per core" not in alone("run", "--gpus", 1, "--", "true").err
    alone("down")
    assert "one per core" not in alone("run", "--gpus", 1, "--", "true").err


def test_the_command_that_up_prints_next_runs_on_a_machine_without_gpus(alone: Shell) -> None:
    said = alone("up").out
    assert "no GPU found" in said
    assert "the first job lets slots stand in for GPUs" in said
    assert "one per core" not in alone("run", "--gpus", 0, "--", "true", code=None).err, "it needs none"
    alone("rm", "--ended", "--yes")
    (alone.work / "job.yaml").write_text("command: echo hi\n")
    alone("down")
    again = Shell(alone.home.with_name("other"), alone.work)
    try:
        again("up")
        submitted = again("submit", "job.yaml")
        assert "one per core" in submitted.err
        again("wait", 1)
        assert slots(again) == len(os.sched_getaffinity(0))
        assert "the first job" not in again("up").out
    finally:
        again("down", "--cancel", code=None)


def test_no_slots_come_by_themselves_where_somebody_wants_none(alone: Shell) -> None:
    alone("up", "--gpus", 0)
    assert "it needs a GPU and no node has one" in alone("run", "--", "true", code=2).err
    assert slots(alone) == 0


def test_what_cannot_change_while_it_runs_is_said(alone: Shell) -> None:
    alone("up", "--gpus", 1)
    assert "--port holds from a start on" in alone("up", "--port", 9, "--gpus", 2).out
    assert slots(alone) == 2
    assert "auto" in alone("up", "--gpus", "many", code=2).err


def test_a_policy_that_is_asked_for_holds_on_an_old_home_and_on_a_running_daemon(alone: Shell) -> None:
    assert "before:" not in alone("up", "--gpus", 1, "--policy", "fifo").out
    assert "policy srjf, placer" in alone("up", "--policy", "srjf").out
    alone("down")
    assert "(before: srjf, " in alone("up", "--policy", "fifo").out
    assert json.loads(alone("policy", "--json").out)["name"] == "fifo"
    assert "before:" not in alone("up", "--policy", "fifo").out, "it is what it is"
    assert "there is no policy" in alone("up", "--policy", "fastest", code=2).err
