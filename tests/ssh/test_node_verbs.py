"""`swell node ls|show|lost|remove` with a machine that has nothing but sshd."""

from __future__ import annotations

import json
from collections.abc import Callable

from harness import Daemon, eventually
from ssh.machines import Machine
from ssh.shell import Shell
from swell.core.resources import fingerprint

New = Callable[..., Machine]


def add(sh: Shell, machine: Machine, *options: object) -> None:
    sh("node", "add", f"ada@{machine.address}", "--key", machine.key, "--name", machine.name, *options)


def test_show_says_how_a_machine_is_reached_and_who_uses_its_gpus(new_machine: New, sh: Shell) -> None:
    machine = new_machine("gpu1", gpus=2)
    machine.occupy(1, 5000)
    add(sh, machine, "--lease", "2m", "--setup", "module load cuda", "--label", "kind=a")
    said = sh("node", "show", "gpu1")
    for words in (
        f"ssh ada@{machine.address}, key {machine.key}",
        fingerprint(machine.host_key),
        "2m00s: jobs end by themselves so long after they lost the daemon",
        "module load cuda",
        "kind=a",
        "others' work (5 GiB), left alone",
        "GPU-gpu1-0",
    ):
        assert words in said, said
    assert next(node["name"] for node in json.loads(sh("node", "ls", "--json"))) == "gpu1"


def test_remove_asks_and_leaves_nothing_on_the_machine(new_machine: New, served: Daemon, sh: Shell) -> None:
    machine = new_machine("gpu1", gpus=1)
    add(sh, machine)
    assert "--yes or --keep-files" in sh("node", "remove", "gpu1", code=2)
    mine = machine.home() / ".swell" / "other-cluster"
    machine.run("mkdir", "-p", "/home/ada/.swell/other-cluster")
    assert "removed gpu1" in sh("node", "remove", "gpu1", "--yes")
    assert [path.name for path in (machine.home() / ".swell").iterdir()] == [mine.name]
    assert "gpu1" not in [node["name"] for node in served.get("/v1/nodes")["nodes"]]


def test_a_machine_that_is_away_can_be_removed_and_what_is_left_is_said(new_machine: New, sh: Shell) -> None:
    machine = new_machine("gpu1", gpus=1)
    add(sh, machine)
    machine.cut()
    said = sh("node", "remove", "gpu1", "--yes")
    assert "removed gpu1; note: " in said
    assert "by hand" in said


def test_lost_is_only_believed_of_machines_that_do_not_answer_and_says_what_it_means(
    new_machine: New, sh: Shell
) -> None:
    machine = new_machine("gpu1", gpus=1)
    add(sh, machine)
    assert "add --is-off" in sh("node", "lost", "gpu1", code=2)
    assert "they run twice" in sh("node", "lost", "gpu1", "--is-off", code=2)
    sh("node", "add", "spare", "--gpus", 1)
    assert "it is not off" in sh("node", "lost", "spare", "--is-off", "--yes", code=2)
    assert "no node" in sh("node", "lost", "gpu9", "--is-off", "--yes", code=2)


def heard(served: Daemon, machine: Machine) -> None:
    eventually(lambda: served.get(f"/v1/nodes/{machine.name}")["boot_id"], 60, what=f"{machine.name} was heard")


def test_remove_after_jobs_ran_leaves_no_file_and_no_process(new_machine: New, served: Daemon, sh: Shell) -> None:
    machine = new_machine("gpu1", gpus=1)
    add(sh, machine)
    heard(served, machine)
    (sh.work / "train.py").write_text("print('trained')\n")
    assert "trained" in sh("run", "--gpus", 1, "--", "python3", "train.py")
    assert (machine.home() / ".swell").is_dir()
    assert "note" not in sh("node", "remove", "gpu1", "--yes")
    assert list(machine.home().iterdir()) == []
    eventually(lambda: machine.commands() == [], 30, what="no process of Swell is left")


def test_jobs_of_a_machine_that_was_reported_as_off_continue_elsewhere_at_once(
    new_machine: New, served: Daemon, sh: Shell
) -> None:
    """Its lease would have kept them for ten minutes."""
    first, second = new_machine("gpu1", gpus=1), new_machine("gpu2", gpus=1)
    add(sh, first)
    heard(served, first)
    [number] = served.submit(name="long", command=["sh", "-c", "hostname; sleep 1000"], gpus=1)
    eventually(lambda: served.get(f"/v1/jobs/{number}")["state"] == "running", 60, what="it runs on gpu1")
    add(sh, second)
    heard(served, second)
    assert "answers, so it is not off" in sh("node", "lost", "gpu1", "--is-off", "--yes", code=2)
    first.power_off()
    eventually(lambda: served.get("/v1/nodes/gpu1")["contact"] == "away", 60, what="gpu1 is away")
    assert "gpu1 away for" in sh("nodes")
    assert served.get(f"/v1/jobs/{number}")["where"] == ["gpu1:0"]
    assert "LOST" in sh("node", "lost", "gpu1", "--is-off", "--yes")
    eventually(lambda: served.get(f"/v1/jobs/{number}")["where"] == ["gpu2:0"], 60, what="it continues on gpu2")
    runs = served.get(f"/v1/jobs/{number}/runs")["runs"]
    assert "reported that it is switched off" in str(runs)
