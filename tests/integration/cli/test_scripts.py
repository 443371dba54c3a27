"""What scripts use: wait, --set, logs that must exist."""

import json

from integration.cli.conftest import Shell


def test_wait_returns_when_they_have_ended(sh: Shell) -> None:
    good = json.loads(sh("run", "-d", "--json", "--gpus", 0, "--", "true").out)["ids"][0]
    bad = json.loads(sh("run", "-d", "--json", "--gpus", 0, "--", "false").out)["ids"][0]
    assert f"job {good} COMPLETED" in sh("wait", good).err
    assert f"job {bad} FAILED" in sh("wait", good, bad, code=1).err
    slow = json.loads(sh("run", "-d", "--json", "--gpus", 0, "--", "sleep", 60).out)["ids"][0]
    assert f"not ended after 0.2s: {slow}" in sh("wait", "--timeout", "0.2s", slow, code=124).err
    sh("stop", slow)


def test_set_changes_what_the_file_says(sh: Shell) -> None:
    (sh.work / "job.yaml").write_text("command: echo $LR\ngpus: 4\nenv: {LR: 1}\n")
    done = sh("submit", "job.yaml", "--set", "gpus=0", "--set", "env.LR=0.5", "--set", "name=changed", "--json")
    job = json.loads(done.out)["ids"][0]
    assert sh("logs", "-f", job).out == "0.5\n"
    assert json.loads(sh("show", "changed", "--json").out)["gpus"]["max"] == 0
    assert "FIELD=VALUE" in sh("submit", "job.yaml", "--set", "gpus", code=2).err


def test_logs_of_an_attempt_that_never_was_are_an_error(sh: Shell) -> None:
    sh("run", "--gpus", 0, "--name", "says", "--", "echo a; echo b")
    assert "has no attempt 7" in sh("logs", "says", "--attempt", 7, code=2).err
    assert json.loads(sh("logs", "says", "-n", 1, "--json").out)["text"] == "b\n"
