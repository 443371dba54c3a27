"""SIGTERM, GPU memory, the old profiler and the Hugging Face callback: each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from integration.sdk.fake_daemon import fake_daemon
from swell.sdk import ship

STOPPED = 85


def environment(tmp_path: Path, url: str, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ship.ship(tmp_path / "sdk")),
        "SWELL_URL": url,
        "SWELL_RUN": "1.1",
        "SWELL_RANK": "0",
        "SWELL_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        **more,
    }


def start(code: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)


LOOP = """
import time, swell
with swell.training(epochs=1000) as run:
    for epoch in run.epochs():
        print(epoch, flush=True)
        for _ in run.steps(range(100 if STEPS else 2)):
            time.sleep(0.01)
            if STEPS and run.should_stop():
                break
        run.save(epoch)
"""


@pytest.mark.parametrize("steps", [False, True])
def test_sigterm_becomes_a_clean_stop_at_the_next_boundary(tmp_path: Path, steps: bool) -> None:
    with fake_daemon() as daemon:
        process = start(f"STEPS = {steps}\n" + LOOP, environment(tmp_path, daemon.url))
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        sent_s = time.monotonic()
        process.communicate(timeout=20)
        assert process.returncode == STOPPED
        assert time.monotonic() - sent_s < 5, "an epoch of 100 steps is not waited for"


def test_without_a_daemon_sigterm_still_is_a_clean_stop(tmp_path: Path) -> None:
    process = start("STEPS = False\n" + LOOP, environment(tmp_path, "http://127.0.0.1:9"))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == STOPPED


def test_a_forked_child_dies_of_sigterm_as_it_always_did(tmp_path: Path) -> None:
    code = """
import os, signal, swell, time
run = swell.training(epochs=2)
run.start_epoch()
there, here = os.pipe()
pid = os.fork()
if not pid:
    os.write(here, b"x")
    time.sleep(60)
os.read(there, 1)
os.kill(pid, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    with fake_daemon() as daemon:
        out, _ = start(code, environment(tmp_path, daemon.url)).communicate(timeout=30)
    assert out.strip() == str(-signal.SIGTERM)


def test_a_crash_is_a_failure_and_its_epoch_is_not_counted(tmp_path: Path) -> None:
    code = """
import swell
for epoch in range(3):
    swell.start_epoch()
    swell.end_epoch()
    if epoch == 2:
        raise RuntimeError("while saving the checkpoint")
"""
    with fake_daemon() as daemon:
        process = subprocess.run(
            [sys.executable, "-c", code], env=environment(tmp_path, daemon.url), capture_output=True, check=False
        )
        time.sleep(0.1)
        done = max((entry["epoch"] for entry in daemon.epochs()), default=0)
    assert process.returncode == 1
    assert done <= 2


NVML = r"""
#include <stdio.h>
typedef struct { unsigned pid; unsigned long long used; unsigned a, b; } process;
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory *found) { found->used = 7000ull << 20; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *found) {
    FILE *file = fopen(STATE, "r");
    unsigned pid, mib, n = 0;
    while (fscanf(file, "%u %u", &pid, &mib) == 2) {
        found[n].pid = pid;
        found[n++].used = (unsigned long long)mib << 20;
    }
    fclose(file);
    *count = n;
    return 0;
}
"""
PEAK = """
import os, subprocess, sys
from swell.sdk.gpu import GpuMemory
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
mine = f"{os.getpid()} 300\\n{child.pid} 200\\n" if sys.argv[1] == "mine" else ""
open(os.environ["STATE"], "w").write(mine + "1 4000\\n")
memory = GpuMemory(shared=sys.argv[1] == "shared")
memory.sample()
child.kill()
print(memory.peak_mib)
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="a stand-in for the driver's library is compiled with gcc")
@pytest.mark.parametrize(
    ("kind", "mib"),
    [("mine", "500"), ("elsewhere", "7000"), ("shared", "0")],
    ids=["summed over the process tree", "in a container: the whole GPU", "never what a neighbour uses"],
)
def test_gpu_memory(tmp_path: Path, kind: str, mib: str) -> None:
    (tmp_path / "stub.c").write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    state = tmp_path / "state"
    define = f'-DSTATE="{state}"'
    subprocess.run(["gcc", "-shared", "-fPIC", define, "-o", str(library), str(tmp_path / "stub.c")], check=True)
    env = {**environment(tmp_path, ""), "LD_LIBRARY_PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"}
    env["STATE"] = str(state)
    found = subprocess.run([sys.executable, "-c", PEAK, kind], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == mib


def test_without_a_driver_gpu_memory_is_not_known(tmp_path: Path) -> None:
    code = "from swell.sdk.gpu import GpuMemory; m = GpuMemory(); m.sample(); m.sample(); print(m.peak_mib)"
    env = {**environment(tmp_path, ""), "CUDA_VISIBLE_DEVICES": "0"}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "0"


PROFILER = """
import json
from kubernetesdlprofile import kubeprofiler
prof = kubeprofiler.KubeProfiler("jobmanager:80", "profiles:80")
for _ in range(prof.EPOCHS - prof.EPOCHS_DONE):
    prof.start_epoch()
    prof.measure()
    prof.measure()
    prof.end_epoch()
names = ("JOBID PROFILE_EACH RANK LOCAL_RANK NODE_LIST NUM_GPUS NUM_NODES RESTARTED BATCH_SIZE EPOCHS EPOCHS_DONE"
         " TRAINING_SET_SIZE root_dir ckpt_path iterations epoch iterationPerEpoch maxIterations has_to_stop").split()
print(json.dumps({name: getattr(prof, name) for name in names}))
assert prof.mean_iteration_duration >= 0 and prof.end_epoch_time >= prof.start_epoch_time > 0
prof.end()
"""


def profiled(env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", PROFILER], env=env, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_attribute_of_the_guides_profiler(tmp_path: Path) -> None:
    guide = {
        "JOB_UUID": "7",
        "HEARTBEAT_FREQ": "10",
        "NODE_RANK": "1",
        "NODELIST": "n1,n2",
        "NUM_GPUS": "2",
        "NUM_NODES": "2",
        "JOB_RESTARTED": "TRUE",
        "EPOCHS_DONE": "3",
        "EPOCHS_TO_BE_DONE": "5",
        "BATCH_SIZE": "8",
        "TRAINING_SET_SIZE": "320",
    }
    with fake_daemon() as daemon:
        found = profiled(environment(tmp_path, daemon.url, **guide))
        assert daemon.epochs()[-1]["epoch"] == 5
    root = str(tmp_path / "checkpoints")
    assert found == {
        "JOBID": "7",
        "PROFILE_EACH": 10,
        "RANK": 1,
        "LOCAL_RANK": -1,
        "NODE_LIST": "n1,n2",
        "NUM_GPUS": 2,
        "NUM_NODES": 2,
        "RESTARTED": True,
        "BATCH_SIZE": 8,
        "EPOCHS": 5,
        "EPOCHS_DONE": 3,
        "TRAINING_SET_SIZE": 320,
        "root_dir": root,
        "ckpt_path": f"{root}/tf_ckpts",
        "iterations": 4,
        "epoch": 5,
        "iterationPerEpoch": 10,
        "maxIterations": 50,
        "has_to_stop": False,
    }


def test_the_profiler_works_outside_a_scheduler(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": environment(tmp_path, "")["PYTHONPATH"], "EPOCHS_TO_BE_DONE": "2"}
    found = profiled(env)
    assert (found["RESTARTED"], found["EPOCHS_DONE"], found["epoch"], found["ckpt_path"]) == (False, 0, 2, None)


OLD = """
import sys, swell
from swell.sdk import adaptive, carry, gpu
with swell.training(epochs=5) as run:
    total = run.load(0)
    for epoch in run.epochs():
        for batch in run.steps(range(3)):
            total += 1
            run.should_stop()
        run.log(loss=1.0)
        run.save(total)
print(total)
"""


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_other_pythons_run_it(tmp_path: Path, version: str) -> None:
    """In $SWELL_PYTHONS (a directory of installed versions, such as pyenv's), else on PATH."""
    installed = sorted(Path(os.environ.get("SWELL_PYTHONS", "/nowhere")).glob(f"{version}.*/bin/python"))
    python = str(installed[-1]) if installed else shutil.which(f"python{version}") or ""
    if not python or subprocess.run([python, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"no Python {version} here")
    with fake_daemon() as daemon:
        env = environment(tmp_path, daemon.url)
        done = subprocess.run([python, "-W", "error", "-c", OLD], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.strip()) == (0, "15"), done.stderr
        assert daemon.epochs()[-1]["epoch"] == 5
