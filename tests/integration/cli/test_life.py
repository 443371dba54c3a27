"""Starting, stopping and losing the daemon."""

import json
import os
import signal
import time

from harness import eventually
from integration.cli.conftest import Shell


def test_run_starts_a_daemon_when_there_is_none(alone: Shell) -> None:
    done = alone("run", "--gpus", 0, "--", "echo hi")
    assert done.out == "hi\n"
    assert (alone.home / "token").stat().st_mode & 0o777 == 0o600
    assert "runs already" in alone("up").out


def test_up_and_down_leave_jobs_running(alone: Shell) -> None:
    done = alone("up", "--gpus", 2)
    assert "2 slots, no NVIDIA driver" in done.out or "x" in done.out
    assert done.out.count("swell ") >= 3
    may_end = alone.work / "may-end"
    waits = f"until [ -e {may_end} ]; do sleep 0.1; done; echo done"
    alone("run", "-d", "--gpus", 1, "--name", "goes-on", "--", waits)
    eventually(lambda: json.loads(alone("show", "last", "--json").out)["state"] == "running", 30, every_s=0.1)
    assert "1 job still running" in alone("down").out
    alone("up", "--gpus", 2)
    may_end.touch()
    assert alone("logs", "-f", "goes-on").out == "done\n"


def test_without_a_daemon_the_exit_code_is_3(alone: Shell) -> None:
    for verb in (("ls",), ("show", "1"), ("cancel", "1"), ("down",)):
        done = alone(*verb, code=3)
        assert "swell up" in done.err
    alone.env["SWELL_URL"] = "http://127.0.0.1:9"
    assert "http://127.0.0.1:9" in alone("run", "--", "true", code=3).err
    del alone.env["SWELL_URL"]


def test_logs_go_on_over_a_restart_of_the_daemon(alone: Shell) -> None:
    alone("up", "--gpus", 1)
    alone("run", "-d", "--gpus", 0, "--name", "talker", "--", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done")
    follower = alone.start("logs", "-f", "talker")
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"1\n"
    os.kill(json.loads((alone.home / "daemon.json").read_text())["pid"], signal.SIGKILL)
    time.sleep(0.3)
    alone("up", "--gpus", 1)
    out = follower.stdout.read()  # not communicate(): what readline has read ahead belongs to it
    assert follower.wait(timeout=30) == 0
    for pipe in (follower.stdin, follower.stdout, follower.stderr):
        assert pipe is not None
        pipe.close()
    assert out == b"2\n3\n4\n5\n6\n7\n8\n"


def test_a_second_daemon_is_refused_with_the_address_of_the_first(alone: Shell) -> None:
    alone("up", "--gpus", 1)
    url = json.loads((alone.home / "daemon.json").read_text())["url"]
    assert url in alone("serve", code=2).err


def test_a_wrong_setting_is_said_in_one_line(alone: Shell) -> None:
    alone.home.mkdir()
    (alone.home / "config.yaml").write_text("polcy: fifo\n")
    done = alone("up", code=3)
    assert "polcy" in done.err
    assert "Traceback" not in done.err


def test_down_cancel_says_what_it_gave_up_and_leaves_nothing_running(alone: Shell) -> None:
    alone("up", "--gpus", "1")
    alone("run", "-d", "--", "sleep", "100")
    alone("run", "-d", "--", "sleep", "100")
    said = alone("down", "--cancel").out
    assert "cancelled 2 jobs" in said
    assert "still running" not in said
