"""`swell batch` and `execute_batch` on machines over SSH that are named by files of four lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import Daemon, eventually
from ssh.fleet import add, until_contact
from ssh.machines import Machine
from ssh.shell import Shell
from swell.jobfile.batchfile import read_batch

New = Callable[..., Machine]
TIMEOUT_S = 300


def machine_file(sh: Shell, machine: Machine, address: str = "") -> str:
    text = f"username: ada\nip: {address or machine.address}\nport: 22\nssh_key_path: {machine.key}\n"
    path = sh.work / f"{machine.name}.yaml"
    path.write_text(text)
    return path.name


def results(sh: Shell, text: str) -> list[str]:
    place = sh.work / "job_results"
    return [(place / f"{line.name}.out").read_text() for line in read_batch(text, "b.sh")]


@pytest.mark.parametrize("lines", [60, 300], ids=["sixty", "three_hundred"])
def test_lines_over_three_machines_of_different_size(
    three_machines: tuple[Machine, Machine, Machine], sh: Shell, lines: int
) -> None:
    files = [machine_file(sh, machine) for machine in three_machines]
    text = "".join(f"sleep 1; echo {n} $CUDA_VISIBLE_DEVICES\n" for n in range(lines))
    (sh.work / "b.sh").write_text("echo first\n")
    said = sh("batch", "b.sh", "--machines", *files, timeout=TIMEOUT_S)
    limits = next(line for line in said.splitlines() if line.startswith("machine limits"))
    assert limits == "machine limits: {'gpu1': 4, 'gpu2': 2, 'gpu3': 1}"
    assert "machine gpu choices: {'gpu1': [0, 1, 2, 3], 'gpu2': [0, 1], 'gpu3': [0]}" in said
    (sh.work / "b.sh").write_text(text)
    began_s = time.monotonic()
    said = sh("batch", "b.sh", "--machines", *files, timeout=TIMEOUT_S)
    sys.stderr.write(f"{lines} lines of 1 s over 7 GPUs of 3 machines: {time.monotonic() - began_s:.1f} s\n")
    assert f"{lines} finished; results in job_results" in said
    found = [line.split() for line in results(sh, text)]
    assert [words[0] for words in found] == [str(n) for n in range(lines)]
    assert {words[1] for words in found} == {"0", "1", "2", "3"}
    assert {node for node in ("gpu1", "gpu2", "gpu3") if f" on {node}; " in said} == {"gpu1", "gpu2", "gpu3"}


def test_only_the_machines_that_are_named_run_the_lines(new_machine: New, sh: Shell, served: Daemon) -> None:
    named, other = new_machine("named", gpus=1), new_machine("other", gpus=2)
    add(sh, other)
    text = "".join(f"hostname; echo {n}\n" for n in range(4))
    (sh.work / "b.sh").write_text(text)
    said = sh("batch", "b.sh", "--machines", machine_file(sh, named), timeout=TIMEOUT_S)
    assert "machine limits: {'named': 1}" in said
    assert results(sh, text) == [f"named\n{n}\n" for n in range(4)]
    (sh.work / "c.sh").write_text("true\n")
    named.power_off()
    until_contact(served, "named", "away")
    sh("batch", "c.sh", "--machines", "named", "--detach")
    said = sh("explain", "last")
    assert "it names its nodes: named; no other is considered" in said
    assert "no node that it may use takes jobs at present (it may use named)" in said


def test_a_machine_that_dies_half_way_through(new_machine: New, sh: Shell) -> None:
    """Every line ends once, and all results are here. What the dead machine had begun is done by the other."""
    dies, stays = new_machine("dies", gpus=2), new_machine("stays", gpus=2)
    for machine in (dies, stays):
        add(sh, machine, lease="6s")
    text = "".join(
        f"echo {n} >> ~/began; sleep 3; echo {n} >> ~/done; echo {n}; echo {n} > {n}.txt\n" for n in range(14)
    )
    (sh.work / "b.sh").write_text(text)
    with ThreadPoolExecutor() as beside:
        batch = beside.submit(sh, "batch", "b.sh", "--machines", "dies", "stays", timeout=TIMEOUT_S)
        brought = sh.work / "job_results"

        def in_the_middle() -> bool:
            """Two lines of the machine have ended and are here, and two more have just begun."""
            done, began = noted(dies, "done"), noted(dies, "began")
            here = [out.read_text().strip() for out in brought.glob("*.out")]
            return len(done) >= 2 and len(began) == len(done) + 2 and set(done) <= set(here)

        eventually(in_the_middle, 60, what="the machine is in the middle of it", every_s=0.05)
        dies.power_off()
        said = batch.result()
    assert "14 finished; results in job_results" in said
    assert sorted(noted(dies, "done") + noted(stays, "done"), key=int) == [str(n) for n in range(14)]
    assert set(noted(dies, "began")) - set(noted(dies, "done")) <= set(noted(stays, "done"))
    assert results(sh, text) == [f"{n}\n" for n in range(14)]
    assert sorted(path.name for path in brought.rglob("*.txt")) == sorted(f"{n}.txt" for n in range(14))


def noted(machine: Machine, name: str) -> list[str]:
    path = machine.home() / name
    return path.read_text().split() if path.exists() else []


def test_a_machine_that_cannot_be_used_is_set_aside(new_machine: New, sh: Shell, tmp_path: Path) -> None:
    good, bad = new_machine("good", gpus=1), new_machine("bad", gpus=1)
    bad.power_off()
    text = "echo one\necho two\n"
    (sh.work / "b.sh").write_text(text)
    said = sh("batch", "b.sh", "--machines", machine_file(sh, bad), machine_file(sh, good), timeout=TIMEOUT_S)
    assert "WARNING: bad.yaml is set aside; its jobs go elsewhere" in said
    assert results(sh, text) == ["one\n", "two\n"]
    (sh.work / "c.sh").write_text("echo three\n")
    said = sh("batch", "c.sh", "--machines", "bad.yaml", code=2, timeout=TIMEOUT_S)
    assert "none of the machines can be used" in said
