"""Outputs of a job on another machine are brought here: what it wrote and named, and nothing that leads elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, Node, Part
from swell.core.state import JobRecord, Run
from swell.daemon.far_outputs import PIECE, bring_outputs
from swell.jobfile.contents import MTIME_S
from swell.ports import JobFile, JobTree, Order, Piece


class Far:
    def __init__(self, files: dict[str, bytes], mtime_ns: int = 1) -> None:
        self.files, self.mtime_ns = files, mtime_ns

    async def tree(self, order: Order) -> JobTree:
        found = (
            JobFile(path=path, size=len(data), mtime_ns=self.mtime_ns, mode=0o640) for path, data in self.files.items()
        )
        return JobTree(files=tuple(found))

    async def content(self, order: Order, path: str, offset: int, limit: int) -> Piece:
        data = self.files[path]
        return Piece(data=data[offset : offset + limit], size=len(data), inode=1)


def order(*patterns: str) -> Order:
    spec = JobSpec(name="j", command=("true",), outputs=patterns, outputs_to="/there")
    run = Run(id=RunId(1, 1), allocation=Allocation(parts=(Part(node="gpu1"),)), planned_s=0.0)
    return Order(record=JobRecord(id=1, spec=spec, submitted_s=0.0, run=run), nodes={"gpu1": Node(name="gpu1")})


def brought(far: Far, into: Path, *patterns: str, submitted: Path | None = None) -> dict[str, bytes]:
    asyncio.run(bring_outputs(far, order(*patterns), submitted, into))
    return {str(path.relative_to(into)): path.read_bytes() for path in into.rglob("*") if path.is_file()}


def test_what_is_named_comes_whole_and_nothing_else(tmp_path: Path) -> None:
    large = bytes(PIECE) + b"end"
    far = Far({"results/model.pt": large, "results/empty": b"", "train.py": b"code"})
    assert brought(far, tmp_path, "results/") == {"results/model.pt": large, "results/empty": b""}
    assert (tmp_path / "results/model.pt").stat().st_mode & 0o777 == 0o640


def test_no_name_leads_out_of_the_directory(tmp_path: Path) -> None:
    far = Far({"../outside": b"x", "/etc/x": b"x", "a/../../b": b"x", "good": b"x"})
    assert brought(far, tmp_path / "in", "*") == {"good": b"x"}
    assert not (tmp_path / "outside").exists()


def test_a_file_as_it_was_submitted_is_left_out(tmp_path: Path) -> None:
    submitted = tmp_path / "submitted"
    submitted.mkdir()
    (submitted / "data.csv").write_bytes(b"1,2")
    far = Far({"data.csv": b"1,2"}, mtime_ns=MTIME_S * 10**9)
    assert brought(far, tmp_path / "in", "*.csv", submitted=submitted) == {}
    assert brought(Far({"data.csv": b"1,2,3"}), tmp_path / "in", "*.csv", submitted=submitted) == {"data.csv": b"1,2,3"}
