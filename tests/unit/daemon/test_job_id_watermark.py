"""The highest id given on a home outlives the database that gave it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from swell.core.events import JobCancelled, JobSubmitted
from swell.core.job import JobSpec
from swell.daemon.job_id_watermark import JobIdWatermark

SPEC = JobSpec(name="j", command=("true",))


def test_what_was_given_is_found_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "last-job"
    mark = JobIdWatermark(path)
    assert mark.read() == 0
    mark.happened([JobSubmitted(job=8, spec=SPEC, at_s=0.0), JobCancelled(job=3, at_s=1.0)])
    mark.reached(5)
    mark.write()
    assert JobIdWatermark(path).read() == 8
    assert [found.name for found in tmp_path.iterdir()] == ["last-job"]


@pytest.mark.parametrize("content", [b"", b"-3", b"seven", b"\xff\xfe", b"9" * 30])
def test_never_fails_for_what_somebody_wrote_into_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "last-job").write_bytes(content)
    assert JobIdWatermark(tmp_path / "last-job").read() == 0


def test_what_could_not_be_written_is_written_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mark = JobIdWatermark(tmp_path / "home" / "last-job")
    mark.reached(3)
    with caplog.at_level(logging.WARNING):
        mark.write()
    assert "last-job" in caplog.text
    (tmp_path / "home").mkdir()
    mark.write()
    assert mark.read() == 3


def test_ids_are_written_as_they_are_given(tmp_path: Path) -> None:
    async def main() -> None:
        mark = JobIdWatermark(tmp_path / "last")
        writing = asyncio.create_task(mark.run())
        mark.reached(7)
        async with asyncio.timeout(30):
            while not (tmp_path / "last").exists():
                await asyncio.sleep(0)
        writing.cancel()

    asyncio.run(main())
    assert (tmp_path / "last").read_text() == "7\n"
