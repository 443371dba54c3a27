"""A script that is not there is reported at submit; what cannot be known then is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swell.cli.named_files import NothingToRun, check_scripts, notes_on
from swell.jobfile.files import Packed


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "proj" / "src").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "proj")
    (tmp_path / "proj" / "train.py").write_text("1")
    (tmp_path / "proj" / "src" / "model.py").write_text("1")
    return tmp_path / "proj"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("python trian.py", "did you mean train.py?"),
        (["python3.11", "-u", "-X", "dev", "trian.py"], "did you mean train.py?"),
        ("A=1 python -O trian.py --epochs 3 > out.txt 2>&1", "did you mean train.py?"),
        ("python \\\n  trian.py", "did you mean train.py?"),
        ("python model.py && true", "there is src/model.py"),
        ("torchrun --nproc-per-node 2 trian.py", "did you mean train.py?"),
        ("./go.sh", "submit from the directory that has it"),
        ("bash -ex go.sh", "submit from the directory that has it"),
    ],
)
def test_a_script_that_is_not_there_is_refused_with_the_fix(here: Path, command: Any, says: str) -> None:
    with pytest.raises(NothingToRun, match=f"which is not in {here}") as refused:
        check_scripts([{"command": "true"}, {"command": command}], snapshot=True, local=True)
    assert says in str(refused.value)
    assert refused.value.index == 1


@pytest.mark.parametrize(
    "document",
    [
        {"command": "python train.py"},
        {"command": "python -m package"},
        {"command": "python -c 'print(1)' x.py"},
        {"command": "make code && python made.py"},
        {"command": "cd sub\npython x.py"},
        {"command": "python a.py || python train.py"},
        {"command": "python ${model}.py"},
        {"command": "bash -c 'python x.py'"},
        {"command": "python /opt/x.py"},
        {"command": "python 'unfinished"},
        {"command": ["python", "x.py"], "image": "pytorch"},
        {"command": ["python", "x.py"], "files": "0" * 64},
        {"command": ["python", "x.py"], "workdir": "/srv"},
        {"command": ["python", "model.py"], "workdir": "src"},
        {"command": 7},
        {},
    ],
)
def test_what_may_be_there_when_the_job_runs_is_not_refused(document: dict[str, Any]) -> None:
    check_scripts([document], snapshot=True, local=True)


def said(here: Path, command: str, *names: str) -> list[str]:
    packed = Packed(hash="", size=0, names=frozenset(names))
    return list(notes_on(here, packed, {"command": command}))


def test_a_file_to_read_that_is_not_there_is_noted_and_one_to_write_is_not(here: Path) -> None:
    (note,) = said(here, "python train.py --config confg.yaml --out x.csv --val 0.5 --data cifar10", "train.py")
    assert f"names confg.yaml (--config), which is not in {here}" in note


def test_a_file_outside_of_the_copy_is_noted(here: Path) -> None:
    (here.parent / "data.csv").write_text("1")
    (note,) = said(here, "python train.py ../data.csv", "train.py")
    assert f"outside of {here}" in note
    assert f"write {here.parent / 'data.csv'}" in note


def test_an_empty_directory_is_not_copied_and_nothing_leaves_it_out(here: Path) -> None:
    (here / "out").mkdir()
    (note,) = said(here, "python train.py --into out", "train.py")
    assert "names out, which is empty, and only files are copied" in note


def test_a_document_without_a_command_is_left_to_the_check_of_its_fields(here: Path) -> None:
    documents: list[dict[str, Any]] = [{"comand": "python train.py"}, {"command": ""}, {"command": []}]
    for document in documents:
        check_scripts([document], snapshot=True, local=True)
        assert list(notes_on(here, Packed(hash="", size=0, names=frozenset()), document)) == []
