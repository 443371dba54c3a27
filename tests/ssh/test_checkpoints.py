"""Checkpoints that no shared file system has: copied to the daemon while a job trains, delivered where it continues."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Daemon, daemon, eventually
from ssh.fleet import add, job, until, until_contact
from ssh.machines import Machine
from ssh.shell import Shell

New = Callable[..., Machine]
EPOCHS = 24
TRAIN = f"""
import os, socket, time
import swell
with swell.training(epochs={EPOCHS}) as run:
    weights = run.load(default=[])
    for epoch in run.epochs():
        assert len(weights) == epoch, "these are no weights of this epoch"
        time.sleep(0.4)
        weights.append(epoch)
        run.save(weights)
        print("epoch", epoch, "of", os.environ["SWELL_ATTEMPT"], "told", os.environ["EPOCHS_DONE"], flush=True)
print("weights", weights, os.environ["JOB_RESTARTED"], socket.gethostname())
"""
EPOCH = re.compile(r"epoch (\d+) of (\d+) told (\d+)")


@pytest.fixture
def served(tmp_path: Path, user_home: Path) -> Iterator[Daemon]:
    (tmp_path / "swell").mkdir()
    (tmp_path / "swell" / "config.yaml").write_text("checkpoint_copy_every_s: 1.0\n")
    with daemon(tmp_path / "swell", gpus=0, env={"HOME": str(user_home), "SSH_AUTH_SOCK": ""}) as running:
        yield running


@pytest.fixture
def pair(new_machine: New, served: Daemon, sh: Shell) -> tuple[Machine, Machine]:
    made = new_machine("gpu1"), new_machine("gpu2")
    for machine in made:
        add(sh, machine, gpus=1, lease="5s")
        until_contact(served, machine.name, "here")
    return made


def begin(served: Daemon, sh: Shell, **fields: str) -> str:
    """Submit the training; the name of the machine that it runs on, once copies of its checkpoint are made."""
    (sh.work / "train.py").write_text(TRAIN)
    text = "".join(f"{key}: {value}\n" for key, value in fields.items())
    (sh.work / "job.yaml").write_text(f"name: t\ncommand: python3 train.py\ngpus: 1\ngrace: 1s\n{text}")
    sh("submit", "job.yaml")
    copied = fields.get("copy_checkpoints") != "false"
    eventually(lambda: _reached(served, copied), 60, what="a checkpoint is saved, and copied")
    return str(job(served, 1)["where"][0].partition(":")[0])


def _reached(served: Daemon, copied: bool) -> bool:
    view = job(served, 1)
    return bool(view["progress"]["epochs_done"] >= 3 and (not copied or (view["copy"] or {}).get("epoch", 0) >= 2))


def off(served: Daemon, pair: tuple[Machine, Machine], name: str) -> Machine:
    machine = next(machine for machine in pair if machine.name == name)
    machine.power_off()
    return machine


def test_a_job_of_a_machine_without_power_continues_elsewhere_from_its_last_copied_epoch(
    pair: tuple[Machine, Machine], served: Daemon, sh: Shell
) -> None:
    first = begin(served, sh)
    off(served, pair, first)
    until_contact(served, first, "lost", 90)
    eventually(lambda: job(served, 1)["attempts"] == 2, 60, what="it is started elsewhere")
    done = until(served, 1, "completed", timeout_s=90)
    assert done["where"] == [] or first not in str(done["where"])
    trained = [tuple(map(int, found)) for found in EPOCH.findall(sh("logs", 1, "--attempt", 2))]
    [resumed] = {told for _, _, told in trained}
    assert resumed >= 2
    assert [epoch for epoch, _, _ in trained] == list(range(resumed, EPOCHS)), "exactly the epochs that were left"
    assert f"weights {list(range(EPOCHS))} TRUE" in sh("logs", 1, "--attempt", 2)
    events = sh("events", "--job", 1)
    assert "checkpoint copied" in events
    if (rewound := re.search(r"job rewound\s+epoch=(\d+)", events)) is not None:
        assert int(rewound[1]) == resumed
        assert f"set back to epoch {resumed}" in sh("show", 1)
        assert f"set back to epoch {resumed}" in sh("explain", 1)


def test_a_drained_machine_hands_its_newest_checkpoint_on_and_no_epoch_is_repeated(
    pair: tuple[Machine, Machine], served: Daemon, sh: Shell
) -> None:
    first = begin(served, sh)
    sh("node", "drain", first)
    done = until(served, 1, "completed", timeout_s=120)
    attempts = int(done["attempts"])
    said = "".join(sh("logs", 1, "--attempt", attempt) for attempt in range(1, attempts + 1))
    assert [int(epoch) for epoch, _, _ in EPOCH.findall(said)] == list(range(EPOCHS))
    assert attempts == 2
    assert done["rewound"] == ""
    assert [run["where"][0].partition(":")[0] for run in served.get("/v1/jobs/1/runs")["runs"]] != [first, first]


def test_a_job_without_copies_waits_for_its_machine_and_continues_there(
    pair: tuple[Machine, Machine], served: Daemon, sh: Shell
) -> None:
    first = begin(served, sh, copy_checkpoints="false")
    machine = off(served, pair, first)
    until_contact(served, first, "lost", 90)
    eventually(lambda: "copy_checkpoints: false" in sh("explain", 1), 30, what="explain says why it stays")
    assert f"waits for {first}" in sh("explain", 1)
    assert job(served, 1)["attempts"] == 1
    machine.power_on()
    done = until(served, 1, "completed", timeout_s=120)
    runs = served.get("/v1/jobs/1/runs")["runs"]
    assert {str(run["where"][0]).partition(":")[0] for run in runs} == {first}
    assert int(done["progress"]["epochs_done"]) == EPOCHS
