"""A program that cannot be started is reported at submit, with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swell.cli.named_files import NothingToRun
from swell.cli.named_programs import check_programs


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "python3", "env", "bash"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    place = tmp_path / "proj"
    place.mkdir()
    for name, mode in (("train.py", 0o644), ("go.sh", 0o644), ("tool", 0o755), ("data", 0o644)):
        (place / name).touch(mode=mode)
    monkeypatch.chdir(place)
    return place


def check(document: dict[str, Any], *, alone: bool = True, local: bool = True) -> list[str]:
    return check_programs([{"command": "python"}, document], snapshot=True, local=local, alone=lambda: alone)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("train.py", "train.py is a file here, not a program on your PATH; write python train.py"),
        (["train.py", "--lr", "1"], "write python train.py"),
        ("go.sh && true", "write bash go.sh"),
        ("tool", "write ./tool"),
        ("./train.py", "./train.py is not executable; write python ./train.py, or make it so: chmod +x ./train.py"),
        ("A=1 ./data", "./data is not executable; make it so: chmod +x ./data"),
        ("pyhton train.py", "there is no program pyhton on your PATH; did you mean python?"),
        (["hours", "--", "python", "train.py"], "there is no program hours on your PATH"),
        (["cd", "/tmp"], "no program cd on your PATH; it is a word of the shell: write the whole line as one argument"),
    ],
)
def test_what_cannot_be_started_is_refused_with_the_fix(command: Any, says: str) -> None:
    with pytest.raises(NothingToRun) as refused:
        check({"command": command})
    assert says in str(refused.value)
    assert refused.value.index == 1


@pytest.mark.parametrize(
    "document",
    [
        {"command": "python train.py"},
        {"command": "cd sub && python x.py"},
        {"command": "source env.sh; python x.py"},
        {"command": "for i in 1 2; do python x.py; done"},
        {"command": "f() { true; }; f"},
        {"command": "nvcc --version || true"},
        {"command": "$PYTHON train.py"},
        {"command": "/opt/other/python train.py"},
        {"command": "env -i python train.py"},
        {"command": "(cd sub; make)"},
        {"command": "./tool"},
        {"command": "python3.12 x.py", "python": "/opt/python3.12"},
        {"command": "mine", "env": {"PATH": "/opt/bin"}},
        {"command": "mine", "shell_env": {"PATH": "/opt/bin"}},
        {"command": "mine", "image": "pytorch"},
        {"command": "mine", "workdir": "/srv"},
        {"script": "train.py"},
        {"command": 7},
        {"command": []},
        {},
    ],
)
def test_what_may_be_there_when_the_job_runs_is_not_refused(document: dict[str, Any]) -> None:
    assert check(document) == []


def test_a_program_that_another_machine_may_have_is_noted_only() -> None:
    (note,) = check({"command": "horovodrun -np 2 python train.py"}, alone=False)
    assert "there is no program horovodrun on your PATH" in note
    assert "unless the machine that runs it has one" in note


def test_a_daemon_elsewhere_has_a_path_of_its_own() -> None:
    assert check({"command": "mine"}, local=False) == []
    with pytest.raises(NothingToRun):
        check({"command": "train.py"}, local=False)
