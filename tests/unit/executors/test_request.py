"""Golden tests of what a run is started with: argv, environment, directory, for every launcher."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher, Roles
from swell.core.resources import Allocation, Gpu, Node, Part, Share
from swell.core.state import JobRecord, Run
from swell.executors.launchers import following
from swell.executors.request import LaunchContext, build_launch, port_of
from swell.ports import Launch
from swell.sdk.given import noted
from swell.sdk.session import Training
from swell.sdk.settings import Place, read_place, read_settings

CONTEXT = LaunchContext(
    url="http://10.0.0.1:7777",
    token="t0k3n",
    runs_dir="/h/runs",
    checkpoints_dir="/h/checkpoints",
    work_dir="/h/work",
    sdk_dir="/h/sdk",
    master_port=29400,
)
NODES = {
    name: Node(name=name, gpus=tuple(Gpu(index=i, type="a100") for i in range(4)), address=address)
    for name, address in (("n1", "10.0.0.11"), ("n2", "10.0.0.12"))
}
ONE = Allocation(parts=(Part(node="n1", gpus=(1, 3), cpus=2),), gpu_type="a100")
TWO = Allocation(parts=(Part(node="n1", gpus=(0, 2)), Part(node="n2", gpus=(1,))), gpu_type="a100")
SPEC = JobSpec(
    name="resnet",
    command=("python", "train.py", "--lr", "0.1"),
    gpus=GpuRequest(min=1, max=8, memory_mib=9000),
    epochs=10,
    batch_size=32,
    dataset_size=50_000,
    files="abc123",
)


def record(spec: JobSpec = SPEC, allocation: Allocation = ONE, epochs_done: int = 0) -> JobRecord:
    run = Run(id=RunId(7, 2), allocation=allocation, planned_s=0.0)
    return JobRecord(id=7, spec=spec, submitted_s=0.0, run=run, attempts=2, epochs_done=epochs_done)


def launch(launcher: Launcher, allocation: Allocation = ONE, **changes: Any) -> Launch:
    return build_launch(
        record(replace(SPEC, launcher=launcher, **changes), allocation), NODES, dict.fromkeys(NODES, CONTEXT)
    )


def test_a_single_process_gets_every_variable_of_the_guide_and_of_swell() -> None:
    built = build_launch(record(epochs_done=3), NODES, dict.fromkeys(NODES, CONTEXT))
    (worker,) = built.workers
    assert worker.argv == SPEC.command
    assert (worker.node, worker.cwd, worker.gpus) == ("n1", "/h/work/7", (1, 3))
    assert dict(worker.env) == {
        "BATCH_SIZE": "32",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1,3",
        "EPOCHS_DONE": "3",
        "EPOCHS_TO_BE_DONE": "10",
        "HEARTBEAT_FREQ": "10",
        "JOB_RESTARTED": "TRUE",
        "JOB_UUID": "7",
        "NODELIST": "n1",
        "NODE_RANK": "0",
        "NUM_GPUS": "2",
        "NUM_NODES": "1",
        "OMP_NUM_THREADS": "1",
        "PL_TORCH_DISTRIBUTED_BACKEND": "nccl",
        "PYTHONPATH": "/h/sdk",
        "PYTHONUNBUFFERED": "1",
        "RESERVED_MEM": "9000",
        "SWELL_ACCUMULATION": "4",
        "SWELL_ADAPTIVE_BATCH": "0",
        "SWELL_ATTEMPT": "2",
        "SWELL_CHECKPOINT_DIR": "/h/checkpoints/7",
        "SWELL_EPOCHS": "10",
        "SWELL_EPOCHS_DONE": "3",
        "SWELL_GPUS": "2",
        "SWELL_GPU_TYPE": "a100",
        "SWELL_JOB": "7",
        "SWELL_JOB_NAME": "resnet",
        "SWELL_JOURNAL": "/h/runs/7.2/epochs",
        "SWELL_LAUNCHER": "single",
        "SWELL_LOCAL_BATCH": "4",
        "SWELL_LOCAL_RANK": "0",
        "SWELL_NODES": "1",
        "SWELL_RANK": "0",
        "SWELL_ROLE": "worker",
        "SWELL_RUN": "7.2",
        "SWELL_SHARED_GPU": "0",
        "SWELL_TOKEN": "t0k3n",
        "SWELL_URL": "http://10.0.0.1:7777",
        "SWELL_WORLD_SIZE": "1",
        "TF_CONFIG": '{"cluster": {"worker": ["127.0.0.1:29401"]}, "task": {"index": 0, "type": "worker"}}',
        "TRAINING_SET_SIZE": "50000",
    }
    assert built.secrets == ("SWELL_TOKEN",)


def test_the_shell_of_the_submitter_holds_on_its_own_machine_only() -> None:
    shell = {"PATH": "/venv/bin:/bin", "PYTHONPATH": "/lib", "VIRTUAL_ENV": "/venv", "MINE": "shell"}
    spec = replace(SPEC, shell_env=shell, env={"MINE": "file"})
    (here,) = build_launch(record(spec), NODES, dict.fromkeys(NODES, replace(CONTEXT, submit_shell=True))).workers
    assert here.shell_env
    assert (here.env["PATH"], here.env["VIRTUAL_ENV"], here.env["MINE"]) == ("/venv/bin:/bin", "/venv", "file")
    assert here.env["PYTHONPATH"] == "/h/sdk:/lib", "the library is found beside the user's own modules"
    (elsewhere,) = build_launch(record(spec), NODES, dict.fromkeys(NODES, CONTEXT)).workers
    assert not elsewhere.shell_env
    assert "PATH" not in elsewhere.env
    assert "VIRTUAL_ENV" not in elsewhere.env


def test_an_interpreter_of_its_own_comes_first_on_the_path() -> None:
    (worker,) = launch(Launcher.SINGLE, python="/opt/py/bin/python").workers
    assert (worker.env["SWELL_PYTHON"], worker.path_first) == ("/opt/py/bin/python", ("/h/sdk/bin",))
    (plain,) = launch(Launcher.SINGLE).workers
    assert "SWELL_PYTHON" not in plain.env
    assert plain.path_first == ()


def test_a_single_process_is_not_mistaken_for_one_of_several() -> None:
    """nanoGPT and others take RANK for a sign of DDP and die without LOCAL_RANK; the library goes by SWELL_RANK."""
    (worker,) = launch(Launcher.SINGLE).workers
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & set(worker.env)
    assert read_place(worker.env) == Place(rank=0, world_size=1, local_rank=0)


def test_per_node_starts_one_process_a_node_and_world_size_is_the_number_of_nodes() -> None:
    built = launch(Launcher.PER_NODE, TWO)
    assert [(w.node, w.gpus, w.env["RANK"], w.env["NODE_RANK"]) for w in built.workers] == [
        ("n1", (0, 2), "0", "0"),
        ("n2", (1,), "1", "1"),
    ]
    for worker in built.workers:
        assert worker.env["WORLD_SIZE"] == worker.env["NUM_NODES"] == "2"
        assert worker.env["MASTER_ADDR"] == "10.0.0.11"
        assert "LOCAL_RANK" not in worker.env, "its presence tells Lightning not to start the other local processes"
    assert [w.env["NUM_GPUS"] for w in built.workers] == ["2", "1"]


def test_per_gpu_starts_one_process_a_gpu_that_sees_only_its_own() -> None:
    built = launch(Launcher.PER_GPU, TWO)
    seen = [
        (w.rank, w.node, w.env["RANK"], w.env["LOCAL_RANK"], w.env["LOCAL_WORLD_SIZE"], w.env["CUDA_VISIBLE_DEVICES"])
        for w in built.workers
    ]
    assert seen == [
        (0, "n1", "0", "0", "2", "0"),
        (1, "n1", "1", "1", "2", "2"),
        (2, "n2", "2", "0", "1", "1"),
    ]
    assert {w.env["WORLD_SIZE"] for w in built.workers} == {"3"}
    assert json.loads(built.workers[2].env["TF_CONFIG"]) == {
        "cluster": {"worker": ["10.0.0.11:29401", "10.0.0.11:29402", "10.0.0.12:29401"]},
        "task": {"type": "worker", "index": 2},
    }


def test_torchrun_starts_one_agent_a_node_through_carry() -> None:
    built = launch(Launcher.TORCHRUN, TWO)
    assert built.workers[1].argv == (
        *("python", "-m", "swell.sdk.carry"),
        *("python", "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=1", "--nproc-per-node=1"),
        *("--master-addr=10.0.0.11", "--master-port=29400", "--max-restarts=0"),
        *("train.py", "--lr", "0.1"),
    )
    assert built.workers[0].env["SWELL_LEFT_MARK"] == "/h/checkpoints/7/.left-7.2"


@pytest.mark.parametrize(
    ("command", "tail"),
    [
        (("python3.11", "-m", "train", "x"), ("--module", "train", "x")),
        (("/opt/bin/train", "x"), ("--no-python", "/opt/bin/train", "x")),
        (("python", "-u", "train.py"), ("--no-python", "python", "-u", "train.py")),
        (("/bin/sh", "-c", "/venv/bin/python train.py"), ("--no-python", "/bin/sh", "-c", "/venv/bin/python train.py")),
    ],
)
def test_torchrun_takes_scripts_modules_and_programs(command: tuple[str, ...], tail: tuple[str, ...]) -> None:
    argv = launch(Launcher.TORCHRUN, command=command).workers[0].argv
    assert argv[-len(tail) :] == tail
    assert argv[0] == {"/bin/sh": "/venv/bin/python", "/opt/bin/train": "python3"}.get(command[0], command[0])


def test_horovod_is_one_launcher_with_a_discovery_script() -> None:
    built = launch(Launcher.HOROVOD, TWO)
    (worker,) = built.workers
    assert worker.argv == (
        *("python", "-m", "swell.sdk.carry", "horovodrun", "--gloo", "-np", "3", "--min-np", "1", "--max-np", "8"),
        *("--host-discovery-script", "/h/runs/7.2/discovery"),
        *("python", "-m", "swell.sdk.given", "/h/runs/7.2/discovery"),
        *("python", "train.py", "--lr", "0.1"),
    )
    noted = "10.0.0.11=0,2 10.0.0.12=1"
    assert built.discovery == f"#!/bin/sh\n# gpus {noted}\necho 10.0.0.11:2\necho 10.0.0.12:1\n"
    assert worker.env["SWELL_HOST_GPUS"] == noted
    assert launch(Launcher.HOROVOD).discovery == "#!/bin/sh\n# gpus localhost=1,3\necho localhost:2\n"


HERE, BOTH = "localhost=1,3", "10.0.0.11=0,2 10.0.0.12=1"


@pytest.mark.parametrize(
    ("before", "after", "goes_on", "with_devices"),
    [
        (HERE, HERE, HERE, HERE),
        (HERE, "localhost=0,1,3", "localhost=0,1,3", "localhost=1,3,0"),  # those that are there keep theirs
        (HERE, "localhost=1", "localhost=1", ""),  # its worker has left only some time later
        (HERE, BOTH, "", ""),
        (BOTH, HERE, "", ""),
        (BOTH, BOTH + ",2", BOTH + ",2", ""),
        ("", HERE, "", ""),  # begun by a daemon that noted nothing
    ],
)
def test_horovod_follows_in_place_where_every_worker_has_gpus_of_the_run_alone(
    before: str, after: str, goes_on: str, with_devices: str
) -> None:
    old, new = noting(before), noting(after)
    assert noted(following(old, new, devices=False)) == goes_on
    assert noted(following(old, new, devices=True)) == with_devices


def noting(gpus: str) -> str:
    hosts = [(host, len(held.split(","))) for host, _, held in (entry.partition("=") for entry in gpus.split())]
    return "\n".join(["#!/bin/sh", f"# gpus {gpus}", *(f"echo {host}:{count}" for host, count in hosts), ""])


def test_mpi_is_one_mpirun_over_the_hosts() -> None:
    (alone,) = launch(Launcher.MPI).workers
    ranked = (alone.argv[0], "-m", "swell.sdk.ranked")
    assert alone.argv[3:] == ("mpirun", "-np", "2", "-H", "localhost:2", *ranked, *SPEC.command)
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & alone.env.keys(), "all ranks would have the same"
    (worker,) = launch(Launcher.MPI, TWO).workers
    assert worker.argv[3:8] == ("mpirun", "-np", "3", "-H", "10.0.0.11:2,10.0.0.12:1")
    assert worker.argv[-len(SPEC.command) :] == SPEC.command
    handed_on = worker.argv[8 : -len(SPEC.command) - len(ranked)]
    assert set(handed_on[::2]) == {"-x"}
    assert {"SWELL_RUN", "SWELL_TOKEN", "PYTHONPATH"} <= set(handed_on[1::2])
    assert CONTEXT.token not in worker.argv, "a token never appears on a command line"


def test_parameter_servers_follow_the_workers_and_hold_no_gpu() -> None:
    built = launch(Launcher.PS, TWO, roles=Roles(servers=2, server_command=("python", "server.py")))
    assert [(w.rank, w.role, w.gpus) for w in built.workers] == [
        (0, "worker", (0,)),
        (1, "worker", (2,)),
        (2, "worker", (1,)),
        (3, "server", ()),
        (4, "server", ()),
    ]
    server = built.workers[4]
    assert server.argv == ("python", "server.py")
    assert server.env["CUDA_VISIBLE_DEVICES"] == ""
    assert server.env["SWELL_WORLD_SIZE"] == server.env["WORLD_SIZE"] == "3"
    assert json.loads(server.env["TF_CONFIG"]) == {
        "cluster": {
            "worker": ["10.0.0.11:29401", "10.0.0.11:29402", "10.0.0.12:29401"],
            "ps": ["10.0.0.11:29403", "10.0.0.12:29403"],
        },
        "task": {"type": "ps", "index": 1},
    }


def test_a_cpu_only_job_sees_no_gpu() -> None:
    allocation = Allocation(parts=(Part(node="n1", cpus=1),))
    for launcher in (Launcher.SINGLE, Launcher.PER_GPU):
        (worker,) = launch(launcher, allocation).workers
        assert worker.env["CUDA_VISIBLE_DEVICES"] == ""
        assert worker.env["PL_TORCH_DISTRIBUTED_BACKEND"] == "gloo"


def test_a_share_reserves_its_piece_of_memory() -> None:
    share = Allocation(parts=(Part(node="n1", gpus=(0,)),), share=Share(memory_mib=4000, milli=500))
    (worker,) = launch(Launcher.SINGLE, share).workers
    assert worker.env["RESERVED_MEM"] == "4000"
    assert worker.env["SWELL_SHARED_GPU"] == "1", "so that the library never counts a neighbour's memory"


def test_a_users_environment_wins_but_never_over_what_was_given() -> None:
    env = {
        "OMP_NUM_THREADS": "4",
        "MASTER_PORT": "1234",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        "SWELL_RUN": "1.1",
        "PYTHONPATH": "/mine",
        "API_KEY": "x",
    }
    built = launch(Launcher.SINGLE, env=env, secrets=("API_KEY",))
    (worker,) = built.workers
    assert (worker.env["OMP_NUM_THREADS"], worker.env["MASTER_PORT"]) == ("4", "1234")
    assert (worker.env["CUDA_VISIBLE_DEVICES"], worker.env["SWELL_RUN"]) == ("1,3", "7.2")
    assert worker.env["PYTHONPATH"] == "/h/sdk:/mine"
    assert built.secrets == ("API_KEY", "SWELL_TOKEN")


def test_array_elements_find_their_index_and_parameters() -> None:
    (worker,) = launch(Launcher.SINGLE, array_index=4, array_parameters={"learning-rate": "0.1"}).workers
    assert worker.env["SWELL_INDEX"] == "4"
    assert worker.env["SWELL_PARAM_LEARNING_RATE"] == "0.1"


@pytest.mark.parametrize(
    ("files", "workdir", "cwd"),
    [
        ("", "", "/h/work/7"),
        ("", "/home/me/project", "/home/me/project"),
        ("abc", "", "/h/work/7"),
        ("abc", "sub", "/h/work/7/sub"),
    ],
)
def test_the_directory_it_runs_in(files: str, workdir: str, cwd: str) -> None:
    assert launch(Launcher.SINGLE, files=files, workdir=workdir).workers[0].cwd == cwd


def test_jobs_that_share_a_checkpoint_directory_never_share_files() -> None:
    env = launch(Launcher.SINGLE, checkpoint_dir="/shared/ckpt").workers[0].env
    assert env["SWELL_CHECKPOINT_DIR"] == "/shared/ckpt/7"


def test_a_fresh_job_is_not_said_to_be_restarted_even_at_its_second_attempt() -> None:
    """A script that loads its checkpoint when JOB_RESTARTED would fail if there is none."""
    (worker,) = build_launch(record(epochs_done=0), NODES, dict.fromkeys(NODES, CONTEXT)).workers
    assert worker.env["JOB_RESTARTED"] == "FALSE"


def test_ports_differ_between_attempts_and_neighbouring_jobs() -> None:
    ports = {port_of(RunId(job, attempt)) for job in range(1, 100) for attempt in (1, 2)}
    assert len(ports) == 198
    assert all(20_000 <= port < 32_000 for port in ports)
    assert port_of(RunId(1, 1), "/home/a/runs") != port_of(RunId(1, 1), "/home/b/runs")


@pytest.mark.parametrize(
    ("batch", "most", "split"),
    [(32, 8, ("4", "4")), (32, 2, ("16", "1")), (6, 8, ("1", "3")), (33, 8, None), (0, 8, None), (1, 8, None)],
)
def test_the_global_batch_is_divided_evenly_or_not_at_all(batch: int, most: int, split: tuple[str, str] | None) -> None:
    """On two GPUs, of a job that takes up to `most`."""
    (worker, *_) = launch(Launcher.SINGLE, batch_size=batch, gpus=GpuRequest(min=1, max=most)).workers
    found = worker.env.get("SWELL_LOCAL_BATCH"), worker.env.get("SWELL_ACCUMULATION")
    assert found == (split or (None, None))
    run = Training(settings=read_settings(worker.env))
    assert run.local_batch * run.accumulation * run.gpus == (batch if split else 0), "0: it cannot be divided"
