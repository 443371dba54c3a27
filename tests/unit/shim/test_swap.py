"""A checkpoint that has arrived takes the place of the one before."""

from __future__ import annotations

from pathlib import Path

from swell.shim.checkpoints import _swap


def test_nothing_is_left_of_what_was_replaced(tmp_path: Path) -> None:
    for name, text in (("fresh", "new"), ("7", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "last.pt").write_text(text)
    _swap(str(tmp_path / "fresh"), str(tmp_path / "7"))
    assert (tmp_path / "7" / "last.pt").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    _swap(str(tmp_path / "fresh"), str(tmp_path / "8"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7", "8"]
