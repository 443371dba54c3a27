"""`swell batch FILE` against a real daemon with four slots: what runs, what comes back, and what Ctrl-C leaves."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import ROOT
from integration.cli.conftest import Done, Shell
from swell.jobfile.batchfile import RUN_LINE, read_batch

TIMEOUT_S = 240


def batch(sh: Shell, lines: Sequence[str], *options: object, code: int = 0) -> Done:
    (sh.work / "b.sh").write_text("\n".join(lines) + "\n")
    return sh("batch", "b.sh", *options, code=code, timeout=TIMEOUT_S)


def names(*lines: str) -> list[str]:
    return [line.name for line in read_batch("\n".join(lines), "b.sh")]


def out(sh: Shell, name: str) -> str:
    return (sh.work / "job_results" / f"{name}.out").read_text()


@pytest.mark.parametrize("line", ["echo 'a\"b' $((1+2)); exit 3", "[[ a == a ]] && echo yes >&2", "exit 0"])
def test_a_line_runs_as_bash_runs_it(tmp_path: Path, line: str) -> None:
    plain = subprocess.run(["bash", "-c", line], capture_output=True, check=False)
    ours = subprocess.run(["bash", "-c", RUN_LINE, "j", line], cwd=tmp_path, capture_output=True, check=False)
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert (tmp_path / "j.out").read_bytes() == plain.stdout
    assert (tmp_path / "j.err").read_bytes() == plain.stderr


def test_each_line_is_a_job_and_its_results_come_back(sh: Shell) -> None:
    (sh.work / "local.sh").write_text("echo from a file\n")
    lines = ["echo one; echo bad >&2; mkdir o; echo x > o/model.pt", "bash local.sh && exit 3", "# no job", "echo two"]
    done = batch(sh, lines, code=1)
    first, second, third = names(*lines)
    assert "machine limits: {'" in done.out
    assert "machine gpu choices: {'" in done.out
    assert f"started: {first}; " in done.out
    assert f"finished: {first}; line 1: echo one" in done.out
    assert f"failed: {second}; exit code 3" in done.out
    assert "line 2: bash local.sh" in done.out
    assert "2 finished, 1 failed; results in job_results" in done.err
    assert (out(sh, first), out(sh, second), out(sh, third)) == ("one\n", "from a file\n", "two\n")
    results = sh.work / "job_results"
    assert (results / f"{first}.err").read_text() == "bad\n"
    found = [str(path.relative_to(results)) for path in results.rglob("*") if path.is_file() and path.parent != results]
    assert found == [f"{first}/o/model.pt"]


def test_results_that_are_here_are_never_replaced_unless_asked(sh: Shell) -> None:
    lines = ["date +%s%N", "date +%N; exit 1"]
    first, second = names(*lines)
    batch(sh, lines, "--no-gpu-required", code=1)
    kept, failed = out(sh, first), out(sh, second)
    done = batch(sh, ["echo new", *lines], "--no-gpu-required")
    assert f"WARNING: job results already exist for line 2 ({first}), skipping" in done.err
    assert "started: " in done.out
    assert (out(sh, first), out(sh, second)) == (kept, failed)
    batch(sh, lines, "--no-gpu-required", "--retry-failed", code=1)
    assert out(sh, first) == kept
    assert out(sh, second) != failed
    batch(sh, lines, "--no-gpu-required", "--overwrite", code=1)
    assert out(sh, first) != kept


def test_what_goes_forward_and_what_comes_back_can_be_chosen(sh: Shell) -> None:
    for name in ("a.txt", "b.txt", "c.bin"):
        (sh.work / name).write_text(name)
    lines = ["ls; echo 1 > one.pt; echo 2 > two.log"]
    batch(sh, lines, "--copy", "*.txt", "c.bin", "--exclude", "b.txt", "--copy-back", "*.pt")
    (name,) = names(*lines)
    assert sorted(file for file in out(sh, name).split() if not file.startswith(name)) == ["a.txt", "c.bin"]
    assert [path.name for path in (sh.work / "job_results" / name).iterdir()] == ["one.pt"]


def test_each_option_changes_the_job(sh: Shell) -> None:
    def limits(*options: object) -> str:
        done = batch(sh, ["true"], "--dry-run", *options)
        return next(line for line in done.out.splitlines() if line.startswith("machine limits"))

    node = json.loads(sh("nodes", "--json").out)[0]
    cores = max(node["cpus"], 4)
    assert limits().endswith(": 4}")
    assert limits("--no-gpu-required").endswith(f": {cores}}}")
    assert limits("--num-cpus", cores).endswith(": 1}")
    assert limits("--reserve").endswith(": 1}")
    assert limits(f"--memory-required={node['memory_mib'] // 2}").endswith(": 2}")
    assert limits("--no-reserve-gpu", "--gpu-utilization=0.5", "--num-cpus=0").endswith(": 8}")
    assert limits("--gpus", 2).endswith(": 2}")


def test_a_dry_run_submits_nothing(sh: Shell) -> None:
    before = len(json.loads(sh("ls", "--all", "--json").out))
    assert "nothing was submitted" in batch(sh, ["echo 1", "echo 2"], "--dry-run", "--verbose").out
    assert len(json.loads(sh("ls", "--all", "--json").out)) == before
    assert not (sh.work / "job_results").exists()


def test_a_wrong_line_is_named_and_nothing_runs(sh: Shell) -> None:
    done = batch(sh, ["echo 1", "echo 2 #swell gpu=2"], code=2)
    assert "b.sh:2: there is no option 'gpu' of a line (did you mean gpus?)" in done.err
    assert not done.out


def test_detach_then_status_attach_and_fetch(sh: Shell) -> None:
    lines = ["echo 1", "echo 2"]
    name = json.loads(batch(sh, lines, "--detach", "--json", "--no-gpu-required").out)["batch"]
    assert not (sh.work / "job_results").exists()
    done = sh("batch", "attach", name, timeout=TIMEOUT_S)
    assert "2 finished; results in job_results" in done.err
    assert [out(sh, job) for job in names(*lines)] == ["1\n", "2\n"]
    assert "2 jobs, 2 finished" in sh("batch", "status", name).out
    assert name in sh("batch", "ls").out
    sh("batch", "fetch", name, "--results", "elsewhere")
    assert (sh.work / "elsewhere" / f"{names(*lines)[0]}.out").read_text() == "1\n"
    assert "2 were here already" in sh("batch", "fetch", name).out
    assert "there is no batch 'nothing'" in sh("batch", "status", "nothing", code=2).err


def test_cancel_ends_a_detached_batch(sh: Shell) -> None:
    lines = ["sleep 600", "sleep 601"]
    name = json.loads(batch(sh, lines, "--detach", "--json", "--no-gpu-required").out)["batch"]
    assert "cancelled 2 jobs" in sh("batch", "cancel", name).out
    assert "2 cancelled" in sh("batch", "attach", name, code=1, timeout=TIMEOUT_S).err


def test_ctrl_c_stops_the_jobs_and_still_collects(sh: Shell) -> None:
    lines = [f"echo began {n}; echo {n} > part.txt; exec sleep 654.{n}" for n in range(6)]
    (sh.work / "b.sh").write_text("\n".join(lines) + "\n")
    process = sh.start("batch", "b.sh")
    assert process.stdout is not None
    started = 0
    while started < 4:
        started += process.stdout.readline().startswith(b"started: ")
    began = [sh.home / "work"]
    until = time.monotonic() + TIMEOUT_S
    while len([p for p in began[0].glob("*/part.txt") if "began" in _out_beside(p)]) < 4:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, err
    assert said.count(b"cancelled: ") == 6
    assert b"6 cancelled; results in job_results" in err
    found = sorted(path.read_text() for path in (sh.work / "job_results").glob("*/part.txt"))
    assert found == ["0\n", "1\n", "2\n", "3\n"]
    assert len(list((sh.work / "job_results").glob("*.out"))) == 4
    assert "sleep 654." not in _running()


def _out_beside(path: Path) -> str:
    return "".join(found.read_text() for found in path.parent.glob("*.out"))


def _running() -> str:
    mine = [Path(f"/proc/{path.name}/cmdline") for path in Path("/proc").glob("[0-9]*")]
    return " ".join(_words(path) for path in mine)


def _words(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def test_a_line_ends_with_its_shell_and_leaves_nothing_running(sh: Shell) -> None:
    batch(sh, ["sleep 6543 & echo started"], "--no-gpu-required")
    assert out(sh, names("sleep 6543 & echo started")[0]) == "started\n"
    assert "sleep 6543" not in _running().replace("sleep 6543 &", "")


def test_sixty_lines_over_four_slots_are_complete_and_use_all_slots(sh: Shell) -> None:
    """How long it takes against ideal packing is in docs/figures/batch.md."""
    lines = [f"sleep 0.5; echo {n}" + ("; exit 1" if n % 20 == 7 else "") for n in range(60)]
    done = batch(sh, lines, code=1)
    assert [out(sh, name) for name in names(*lines)] == [f"{n}\n" for n in range(60)]
    assert "57 finished, 3 failed" in done.err
    assert [done.out.count(word) for word in ("started: ", "finished: ", "failed: ")] == [60, 57, 3]
    views = json.loads(sh("batch", "status", "last", "--json").out)
    spans = [(view["started_s"], view["ended_s"]) for view in views]
    assert max(sum(1 for began, ended in spans if began <= at < ended) for at, _ in spans) == 4


def execute(sh: Shell, what: str, *args: str) -> subprocess.CompletedProcess[str]:
    """A command of ml-scheduler."""
    call = f"from swell.cli.execute import {what}_main; {what}_main()"
    command = [sys.executable, "-c", call, *args]
    return subprocess.run(
        command, cwd=sh.work, env=sh.environment(), capture_output=True, text=True, check=False, timeout=120
    )


def test_the_commands_of_ml_scheduler_take_its_options(sh: Shell) -> None:
    (sh.work / "b.sh").write_text("echo one job\n")
    node = json.loads(sh("nodes", "--json").out)[0]["name"]
    needs = ("--no-gpu-required", "--memory-required=10", "--num-cpus=1", "--copy-forward", "*.sh")
    done = execute(sh, "execute_batch", "b.sh", "--machines", node, node, *needs)
    assert done.returncode == 0, done
    assert out(sh, names("echo one job")[0]) == "one job\n"
    assert execute(sh, "execute_remote", "echo remote", "--machine", node, *needs).returncode == 0
    assert [path.read_text() for path in (sh.work / "job_results").glob("execute_remote.*.out")] == ["remote\n"]
    assert execute(sh, "execute_remote", "echo named", "--job-name", "my job/1", *needs).returncode == 0
    assert out(sh, "my_job_1") == "named\n"
    assert execute(sh, "execute_batch", "nothing.sh").returncode == 2


README_LINES = (
    'echo "one job"',
    'echo "jobs will tell you if they fail" && exit 1',
    'echo "another job" && echo "a combined job (bash syntax applies)"',
    'bash local.sh && echo "you can also call local files because they are copied by the remote"',
)
"""The file whose run ml-scheduler's README shows. docs/how-to/batch.md has its console lines beside ours."""


def test_the_batch_of_ml_schedulers_readme_prints_a_line_for_each_of_its_own(sh: Shell) -> None:
    (sh.work / "example").mkdir()
    file = sh.work / "example" / "batch_script.sh"
    file.write_text(README_LINES[2] + "\n")
    assert execute(sh, "execute_batch", "example/batch_script.sh").returncode == 0
    file.write_text("\n".join(README_LINES) + "\n")
    node = json.loads(sh("nodes", "--json").out)[0]["name"]
    done = execute(sh, "execute_batch", "example/batch_script.sh", "--machines", node, "--memory-required=20")
    one, fails, here, missing = [line.name for line in read_batch(file.read_text(), "example/batch_script.sh")]
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith(
        f"WARNING: job results already exist for line 3 ({here}), skipping evaluation: "
    )
    said = done.stdout.splitlines()
    assert said[:2] == [f"machine limits: {{'{node}': 4}}", f"machine gpu choices: {{'{node}': [0, 1, 2, 3]}}"]
    started = [line for line in said if line.startswith(f"started: {one}; ")]
    assert len(started) == 1
    assert started[0].endswith(f"; line 1: {README_LINES[0]}")
    assert any(f"CUDA_VISIBLE_DEVICES={gpu} on {node}; " in started[0] for gpu in range(4)) or (
        "CUDA" not in started[0]  # it had ended when it was looked at: a busy machine
    )
    assert f"finished: {one}; line 1: {README_LINES[0]}" in said
    failed = [line for line in said if line.startswith(f"failed: {fails}; ")]
    assert len(failed) == 1
    assert failed[0].endswith(f"; line 2: {README_LINES[1]}")
    assert any(line.startswith(f"failed: {missing}; ") for line in said)
    assert sum(line.startswith("started: ") for line in said) == 3
    assert "local.sh" in (sh.work / "job_results" / f"{missing}.err").read_text()


DOCUMENTED = (
    *("--machines", "--no-gpu-required", "--memory-required", "--gpu-memory-required", "--no-reserve-gpu"),
    *("--num-cpus", "--gpu-utilization", "--reserve", "--copy-forward", "--copy-backwards", "--dry-run", "--verbose"),
    *("--machine", "--job-name", "--kabuki-commands", "machine limits", "machine gpu choices", "started:", "finished:"),
    *("failed:", "WARNING: job results already exists", "Ctrl-C"),
)


@pytest.mark.parametrize("what", DOCUMENTED)
def test_the_page_shows_ours_beside_each_option_and_line_of_ml_scheduler(what: str) -> None:
    page = (ROOT / "docs" / "how-to" / "batch.md").read_text().partition("## Coming from ml-scheduler")[2]
    rows = [line for line in page.splitlines() if line.startswith("| ") and what in line.split(" | ")[0]]
    assert rows, f"no row of the table begins with {what}"
