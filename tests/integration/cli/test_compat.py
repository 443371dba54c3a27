"""The submission guide's commands, as its users type them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from swell.cli.compat import document_of
from swell.core.job import JobSpec, Mount
from swell.jobfile.expand import expand

SAID: dict[str, Any] = {
    "script_path": "/custom/test1.py",
    "custom_dir": "/home/me/tests",
    "snapshots_dir": "/home/me/snapshots",
    "batch_size": 64,
    "training_set_size": 50_000,
    "max_epochs": 9,
    "is_single_gpu": False,
    "disable_gpu_sharing": False,
    "estimated_memory": 6000,
    "port_mapping": "31346:6006,31347:80",
    "est_nhours": 2.0,
}
SCRIPT = """
import time
from kubernetesdlprofile import kubeprofiler
prof = kubeprofiler.KubeProfiler()
print("batch", prof.BATCH_SIZE, "set", prof.TRAINING_SET_SIZE, "gpus", prof.NUM_GPUS, prof.root_dir, flush=True)
for epoch in range(prof.EPOCHS - prof.EPOCHS_DONE):
    prof.start_epoch()
    for _ in range(3):
        time.sleep(0.01)
        prof.measure()
    prof.end_epoch()
print("epochs", prof.epoch)
"""


def spec_of(datasets: Path, **changes: Any) -> JobSpec:
    (spec,) = expand(document_of("exp", datasets=datasets, **{"image_name": "", **SAID, **changes}))
    return spec


def test_in_a_container_directories_are_mounted_where_the_guide_says(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, image_name="me/train:1")
    assert (spec.image, spec.command) == ("me/train:1", ("python", "/custom/test1.py"))
    assert spec.mounts == (
        Mount(source="/home/me/tests", target="/custom"),
        Mount(source="/home/me/snapshots", target="/snapshots"),
        Mount(source=str(tmp_path), target="/data"),
    )
    assert spec.checkpoint_dir == "/snapshots"
    assert (spec.batch_size, spec.dataset_size, spec.epochs, spec.estimated_s) == (64, 50_000, 9, 7200.0)
    assert (spec.gpus.min, spec.gpus.max, spec.gpus.memory_mib, spec.gpus.share) == (1, 8, 6000, False)
    assert spec.ports == {"31346": "6006", "31347": "80"}


def test_without_an_image_custom_is_the_directory_itself(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    assert spec.command == ("python", "/home/me/tests/test1.py")
    assert (spec.workdir, spec.checkpoint_dir) == ("/home/me/tests", "/home/me/snapshots")


def test_a_single_gpu_job_may_share_it_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert spec_of(tmp_path, is_single_gpu=True).gpus.share
    assert not spec_of(tmp_path, is_single_gpu=True, disable_gpu_sharing=True).gpus.share


def test_submitted_watched_and_read_by_the_guides_commands(sh: Any, tmp_path: Path) -> None:
    custom = tmp_path / "tests"
    custom.mkdir()
    (custom / "test1.py").write_text(SCRIPT)

    def run(command: str, *args: str) -> str:
        code = f"from swell.cli.compat import {command}_main as main; main()"
        argv = [sys.executable, "-c", code, *args]
        done = subprocess.run(argv, cwd=sh.work, env=sh.environment(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    options = ["--script_path", "/custom/test1.py", "--custom_dir", str(custom), "--snapshots_dir", str(tmp_path / "s")]
    numbers = ["--batch_size", "16", "--training_set_size", "320", "--max_epochs", "4", "--is_single_gpu", "true"]
    first = run("run_scheduler", *options, *numbers, "my-experiment").split()
    job = first[1]
    until_s = time.monotonic() + 60
    while "COMPLETED" not in run("scheduler_state", "--nlast", "1") and time.monotonic() < until_s:
        time.sleep(0.2)
    assert "my-experiment" in run("scheduler_state")
    assert "'epochs_done': 4" in run("scheduler_state", "--all_users", "--nlast", "1", "--extended")
    log = run("scheduler_get_logs", job)
    assert f"batch 16 set 320 gpus 1 {tmp_path}/s/{job}" in log
    assert "epochs 4" in log
    run("run_scheduler", *options, "--max_epochs", "100000", "endless")
    run("scheduler_cancel_job", str(int(job) + 1))
