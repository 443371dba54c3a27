"""What is delivered to machines runs on the Pythons that machines have."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from swell import shim
from swell.core import ids
from swell.executors.ssh.bundle import agent_archive, archive_of
from swell.shim import leftovers

FOLDER = Path(shim.__file__).parent


def test_everything_delivered_runs_on_python_3_8() -> None:
    command = [str(Path(sys.executable).parent / "vermin"), "--target=3.8-", "--no-tips", "--violations", str(FOLDER)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_the_agent_imports_nothing_but_the_standard_library_and_itself(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(agent_archive().data)) as archive:
        archive.extractall(tmp_path, filter="data")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import swell.shim.agent, swell.shim.shim"
    subprocess.run([sys.executable, "-ISs", "-c", program], check=True, cwd="/")


def test_the_same_files_make_the_same_archive_and_others_another() -> None:
    one = archive_of({"a": b"1", "b": b"2"})
    assert archive_of({"b": b"2", "a": b"1"}) == one
    assert archive_of({"a": b"1", "b": b"3"}).name != one.name


def test_job_ids_are_written_the_same_on_both_sides() -> None:
    assert leftovers.JOB_ID == ids.JOB_ID
