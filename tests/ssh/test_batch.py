"""`swell batch` and `execute_batch` on machines over SSH that are named by files of four lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

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


def test_sixty_lines_over_three_machines_of_different_size(
    three_machines: tuple[Machine, Machine, Machine], sh: Shell
) -> None:
    files = [machine_file(sh, machine) for machine in three_machines]
    text = "".join(f"sleep 1; echo {n} $CUDA_VISIBLE_DEVICES\n" for n in range(60))
    (sh.work / "b.sh").write_text("echo first\n")
    said = sh("batch", "b.sh", "--machines", *files, timeout=TIMEOUT_S)
    limits = next(line for line in said.splitlines() if line.startswith("machine limits"))
    assert limits == "machine limits: {'gpu1': 4, 'gpu2': 2, 'gpu3': 1}"
    assert "machine gpu choices: {'gpu1': [0, 1, 2, 3], 'gpu2': [0, 1], 'gpu3': [0]}" in said
    (sh.work / "b.sh").write_text(text)
    began_s = time.monotonic()
    said = sh("batch", "b.sh", "--machines", *files, timeout=TIMEOUT_S)
    sys.stderr.write(f"60 lines of 1 s over 7 GPUs of 3 machines: {time.monotonic() - began_s:.1f} s\n")
    assert "60 finished; results in job_results" in said
    found = [line.split() for line in results(sh, text)]
    assert [words[0] for words in found] == [str(n) for n in range(60)]
    assert {words[1] for words in found} == {"0", "1", "2", "3"}
    assert {node for node in ("gpu1", "gpu2", "gpu3") if f" on {node}; " in said} == {"gpu1", "gpu2", "gpu3"}


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
