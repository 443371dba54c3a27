"""Files that a job wrote on a machine over SSH come back: by `swell fetch`, and with a batch."""

from __future__ import annotations

from collections.abc import Callable

from harness import Daemon, eventually
from ssh.machines import Machine
from ssh.shell import Shell
from ssh.test_batch import machine_file
from ssh.test_node_verbs import add, heard
from swell.cli.far_files import PARTIAL, FarFile, part_name

New = Callable[..., Machine]
MIB = 1024 * 1024
WRITES = """
import os
os.mkdir("out")
open("out/model.bin", "wb").write(bytes(range(256)) * 4096 * 3)
open("out/a\\nb", "w").write("odd")
open("empty", "w").close()
open("changed.txt", "a").write("more")
os.symlink("/etc/passwd", "link")
"""


def test_what_a_job_wrote_there_is_fetched_continued_and_never_overwritten(
    new_machine: New, served: Daemon, sh: Shell
) -> None:
    machine = new_machine("gpu1", gpus=1)
    add(sh, machine)
    heard(served, machine)
    (sh.work / "train.py").write_text(WRITES)
    (sh.work / "changed.txt").write_text("some ")
    sh("run", "--gpus", 1, "--", "python3", "train.py")
    assert "4 files, 3.0 MiB, copied into there" in sh("fetch", "last", "--into", "there")
    there = sh.work / "there"
    found = {str(path.relative_to(there)): path.read_bytes() for path in there.rglob("*") if path.is_file()}
    model = bytes(range(256)) * 4096 * 3
    assert found == {"out/model.bin": model, "out/a\nb": b"odd", "empty": b"", "changed.txt": b"some more"}
    assert "there already" in sh("fetch", "last", "--into", "there", code=2)
    # One that broke off: what has arrived is recognizable, and is not sent again.
    [listed] = [f for f in served.get("/v1/jobs/last/tree")["files"] if f["path"] == "out/model.bin"]
    job = served.get("/v1/jobs/last")["id"]
    partial = sh.work / "again" / PARTIAL.format(job=job)
    partial.mkdir(parents=True)
    (partial / part_name(job, FarFile(**listed))).write_bytes(b"X" * MIB)
    sh("fetch", "last", "*.bin", "--into", "again")
    assert (sh.work / "again/out/model.bin").read_bytes() == b"X" * MIB + model[MIB:]
    assert not partial.exists()


def test_outputs_are_copied_back_when_the_job_has_ended(new_machine: New, served: Daemon, sh: Shell) -> None:
    machine = new_machine("gpu1", gpus=1)
    add(sh, machine)
    heard(served, machine)
    (sh.work / "train.py").write_text(WRITES)
    (sh.work / "job.yaml").write_text("command: python3 train.py\ngpus: 1\noutputs: [out/]\n")
    sh("submit", "job.yaml")
    eventually(lambda: served.get("/v1/jobs/last")["outputs"], 60, what="its outputs are copied")
    assert served.get("/v1/jobs/last")["outputs"]["files"] == 2
    assert (sh.work / "out" / "model.bin").read_bytes() == bytes(range(256)) * 4096 * 3
    assert not (sh.work / "empty").exists()


def test_a_batch_brings_files_and_both_streams_from_there(new_machine: New, sh: Shell) -> None:
    machine = new_machine("gpu1", gpus=1)
    (sh.work / "b.sh").write_text("echo said; echo wrong >&2; mkdir -p r; echo 7 > r/score\n")
    said = sh("batch", "b.sh", "--machines", machine_file(sh, machine), timeout=300)
    assert "WARNING" not in said
    results = sh.work / "job_results"
    [out], [err], [score] = results.glob("*.out"), results.glob("*.err"), results.glob("*/r/score")
    assert (out.read_text(), err.read_text(), score.read_text()) == ("said\n", "wrong\n", "7\n")


def test_a_machine_that_does_not_answer_is_named(new_machine: New, served: Daemon, sh: Shell) -> None:
    machine = new_machine("gpu1", gpus=1)
    add(sh, machine)
    heard(served, machine)
    sh("run", "--gpus", 1, "--", "sh", "-c", "echo 1 > made")
    machine.power_off()
    eventually(lambda: served.get("/v1/nodes/gpu1")["contact"] == "away", 60, what="gpu1 is away")
    assert "on gpu1 cannot be read now" in sh("fetch", "last", code=None)
