"""What machines over SSH cost, measured on real ones; `pytest -s` prints the figures of docs/figures/ssh.md."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness import Daemon, daemon, eventually
from ssh.machines import Machine
from ssh.shell import Shell

New = Callable[..., Machine]
MARK = "/tmp/swell-hostile"
PIECES = [
    " ",
    "'",
    '"',
    "`",
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    "\n",
    "\t",
    "\\",
    ";",
    "&",
    "|",
    ">",
    "<",
    "*",
    "?",
]
PIECES += [
    "~",
    "!",
    "#",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "$HOME",
    "${PATH}",
    "%s",
    "é",
    "日本",
    "\x1b[31m",
    "-rf",
    "--",
    "..",
    "/",
    "=",
]


def hostile(dice: random.Random) -> str:
    return "".join(dice.choice(PIECES) for _ in range(dice.randint(1, 12))) or "x"


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def add(sh: Shell, served: Daemon, machine: Machine, *slots: object) -> None:
    """Until it was heard: only then may something start there."""
    sh("node", "add", f"ada@{machine.address}", "--key", machine.key, "--name", machine.name, *slots)
    path = f"/v1/nodes/{machine.name}"
    eventually(lambda: served.get(path)["boot_id"], 60, what=f"{machine.name} was heard")


@pytest.fixture
def lab(three_machines: tuple[Machine, Machine, Machine], served: Daemon, sh: Shell) -> tuple[Machine, ...]:
    for machine in three_machines:
        add(sh, served, machine, "--gpus", 4)
    return three_machines


def test_1000_hostile_strings_arrive_intact_and_execute_nothing(lab: tuple[Machine, ...], served: Daemon) -> None:
    """As environment values and as arguments, in 20 jobs on three machines."""
    dice = random.Random(7)
    show = "import json,os,sys; print(json.dumps([sys.argv[1:], [os.environ['V%d' % i] for i in range(25)]]))"
    sent = []
    for _ in range(20):
        words, values = ([hostile(dice) for _ in range(25)] for _ in range(2))
        env = {f"V{i}": value for i, value in enumerate(values)}
        [number] = served.submit(name="hostile", command=["python3", "-c", show, *words], env=env, gpus=1)
        sent.append((number, [words, values]))
    for number, _ in sent:
        eventually(partial(_is_completed, served, number), 120, what=f"job {number} completed")
    for number, expected in sent:
        assert json.loads(_log(served, number)) == expected, number
    for machine in lab:
        assert not (machine.dir / "tmp" / Path(MARK).name).exists()
    assert not Path(MARK).exists()


def _is_completed(served: Daemon, number: int) -> bool:
    return bool(served.get(f"/v1/jobs/{number}")["state"] == "completed")


def _has_printed(served: Daemon, number: int) -> bool:
    return "here" in _log(served, number)


def _log(served: Daemon, number: int) -> str:
    connection = http.client.HTTPConnection(*served.address, timeout=30)
    try:
        connection.request("GET", f"/v1/jobs/{number}/logs", headers={"Authorization": f"Bearer {served.token}"})
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_submit_to_first_output(lab: tuple[Machine, ...], served: Daemon) -> None:
    """Until the first line can be read through the API; one job at a time."""
    took_s = []
    for _ in range(60):
        began = time.monotonic()
        [number] = served.submit(name="quick", command=["echo", "here"], gpus=1)
        eventually(partial(_has_printed, served, number), 60, every_s=0.005)
        took_s.append(time.monotonic() - began)
    p50, p99 = percentile(took_s, 0.5), percentile(took_s, 0.99)
    print(f"\nsubmit to first output over SSH: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, of {len(took_s)}")
    assert p50 < 5


def _throughput(served: Daemon, count: int) -> float:
    """Jobs per second, from the first submission to the last end."""
    began = time.monotonic()
    numbers = served.submit(name="short", command=["true"], gpus=1, array=f"0-{count - 1}")
    assert len(numbers) == count
    eventually(lambda: served.get("/v1/health")["jobs"].get("completed", 0) >= count, 280, every_s=0.1)
    return count / (time.monotonic() - began)


def test_300_short_jobs_on_three_machines_against_the_local_executor(
    lab: tuple[Machine, ...], served: Daemon, tmp_path: Path
) -> None:
    far = _throughput(served, 300)
    with daemon(tmp_path / "local", gpus=12) as local:
        near = _throughput(local, 300)
    print(f"\n300 short jobs, 12 slots: {far:.1f} jobs/s over SSH on three machines, {near:.1f} jobs/s locally")


def test_an_idle_agent_costs_little(new_machine: New, served: Daemon, sh: Shell) -> None:
    machine = new_machine("gpu1", gpus=2)
    add(sh, served, machine)
    pids = [pid for pid in machine.processes() if b"python" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    before = {pid: _cpu_s(pid) for pid in pids}
    began = time.monotonic()
    eventually(lambda: time.monotonic() - began > 20, 30, every_s=1.0)
    used = sum(_cpu_s(pid) - cpu_s for pid, cpu_s in before.items() if Path(f"/proc/{pid}").exists()) / 20
    rss = {pid: _rss_mib(pid) for pid in pids if Path(f"/proc/{pid}").exists()}
    print(
        f"\nagent: {len(rss)} processes, RSS {[round(mib, 1) for mib in rss.values()]} MiB, {used:.2%} of a core idle"
    )
    assert max(rss.values()) < 40


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
