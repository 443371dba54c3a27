"""Archives that are brought to a machine: there when they are whole, and unpacked once per job."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from swell.shim.delivery import Deliveries

STAMP = {"cluster": "c1", "job": 7}


def archive(**files: bytes) -> tuple[str, bytes]:
    """Its name, which is its content's, and its bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return hashlib.sha256(out.getvalue()).hexdigest(), out.getvalue()


def bring(there: Deliveries, name: str, data: bytes) -> None:
    there.take(name, 0, data[:100], last=False)
    assert not there.have(name), "a part of it is none"
    there.take(name, 100, data[100:], last=True)


def test_an_archive_is_there_once_all_of_it_arrived(tmp_path: Path) -> None:
    there = Deliveries(str(tmp_path))
    name, data = archive(train=b"1")
    bring(there, name, data)
    assert there.have(name)
    other, _ = archive(train=b"2")
    with pytest.raises(OSError, match="did not arrive as it was sent"):
        there.take(other, 0, data, last=True)
    assert not there.have(other)
    assert [path.name for path in (tmp_path / "archives").iterdir()] == [f"{name}.tar"], "no part is left"


def test_a_job_finds_its_files_and_later_attempts_what_it_wrote(tmp_path: Path) -> None:
    there = Deliveries(str(tmp_path))
    (files, of_files), (library, of_library) = archive(train=b"1"), archive(swell=b"2")
    assert there.prepare(7, STAMP, files, library)["need"] == [library, files]
    bring(there, files, of_files)
    bring(there, library, of_library)
    found = there.prepare(7, STAMP, files, library)
    assert found["need"] == []
    assert (Path(found["library"]) / "swell").read_bytes() == b"2"
    work = tmp_path / "work" / "7"
    assert (work / "train").read_bytes() == b"1"
    (work / "train").write_bytes(b"changed by the job")
    there.prepare(7, STAMP, files, library)
    assert (work / "train").read_bytes() == b"changed by the job"
    there.prepare(7, {**STAMP, "cluster": "c2"}, files, library)
    assert (work / "train").read_bytes() == b"1", "another cluster's job of this id begins anew"
    (aside,) = [path for path in (tmp_path / "foreign").iterdir() if path.name.startswith("work-7-")]
    assert (aside / "train").read_bytes() == b"changed by the job"
