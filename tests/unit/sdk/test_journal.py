"""The run's own record of its epochs: written by the library, read by whoever looks at the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.sdk.journal import Journal
from swell.sdk.session import Training
from swell.sdk.settings import Settings
from swell.sdk.steps import StepTraining
from swell.shim.ask import read_journal
from swell.shim.files import boot_s


def settings(tmp_path: Path, **changes: object) -> Settings:
    """Inside a run whose daemon answers nobody."""
    given = {"url": "http://127.0.0.1:9", "run": "1.1", "journal": str(tmp_path / "epochs")}
    return Settings(checkpoint_dir=str(tmp_path / "ck"), **{**given, **changes})  # type: ignore[arg-type]


def done(tmp_path: Path) -> tuple[int, int]:
    found = read_journal(str(tmp_path / "epochs"))
    assert found is not None
    return found["done"], found["total"]


def test_every_epoch_is_noted_though_no_daemon_hears_of_it(tmp_path: Path) -> None:
    before_s = boot_s()
    with Training(epochs=3, settings=settings(tmp_path)) as run:
        seen = []
        for _ in run.epochs():
            seen.append(done(tmp_path))
    assert seen == [(0, 3), (1, 3), (2, 3)]
    assert done(tmp_path) == (3, 3)
    found = read_journal(str(tmp_path / "epochs"))
    assert found is not None
    assert before_s - 1 <= found["began_s"] <= found["at_s"] <= boot_s() + 1
    assert len((tmp_path / "epochs").read_text().splitlines()) == 4


def test_an_attempt_that_resumes_after_the_last_epoch_notes_that(tmp_path: Path) -> None:
    first = Training(epochs=2, settings=settings(tmp_path))
    for epoch in first.epochs():
        first.save(epoch)
    (tmp_path / "epochs").unlink()
    second = Training(epochs=2, settings=settings(tmp_path, run="1.2"))
    assert second.load() == 1
    assert list(second.epochs()) == []
    assert done(tmp_path) == (2, 2)


def test_a_training_that_counts_steps_notes_that_before_its_first_step(tmp_path: Path) -> None:
    """Between loading a checkpoint and the first step much may happen: the daemon reads this line meanwhile."""
    run = StepTraining(unit="step", total=90, settings=settings(tmp_path))
    run.load()
    found = read_journal(str(tmp_path / "epochs"))
    assert found is not None
    assert (found["done"], found["total"], found["unit"]) == (0, 90, "step")


def test_only_rank_0_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Training(epochs=1, settings=settings(tmp_path)) as run:
        list(run.epochs())
    assert not (tmp_path / "epochs").exists()


def test_a_journal_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    Journal(str(tmp_path / "no" / "such" / "place")).note(1, 2)
    Journal("").note(1, 2)


@pytest.mark.parametrize("text", ["", "3", "3 9 12.5", "x y z\n", "1 9 2.0\n\n"])
def test_what_is_no_whole_line_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "epochs").write_text(text)
    assert read_journal(str(tmp_path / "epochs")) is None


def test_a_line_that_is_being_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "epochs").write_text("0 9 1.5\n1 9 2.5\n2 9 3")
    assert read_journal(str(tmp_path / "epochs")) == {
        "resumed": 0,
        "done": 1,
        "total": 9,
        "began_s": 1.5,
        "at_s": 2.5,
        "unit": "epoch",  # of a library of before, which did not note it
    }


def test_a_long_journal_is_read_at_its_ends(tmp_path: Path) -> None:
    (tmp_path / "epochs").write_text("".join(f"{n} 99999 {n}.25\n" for n in range(50_000)))
    expected = {"resumed": 0, "done": 49_999, "total": 99_999, "began_s": 0.25, "at_s": 49_999.25, "unit": "epoch"}
    assert read_journal(str(tmp_path / "epochs")) == expected
