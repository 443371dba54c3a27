"""What a job takes from the shell it is submitted from."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from swell.cli.shell import Wrong, complete

ENVIRON = {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv", "HOME": "/home/me", "WANDB_PROJECT": "p", "KEY": "v"}


def completed(
    said: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = ENVIRON,
    *,
    local: bool = True,
    snapshot: bool = False,
) -> dict[str, Any]:
    document = {"command": "a", **(said or {})}
    complete(document, local=local, snapshot=snapshot, environ=environ)
    return document


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_programs_are_those_of_the_shell_and_nothing_else_is_taken() -> None:
    conda = {**ENVIRON, "CONDA_PREFIX": "/conda", "CONDA_DEFAULT_ENV": "torch", "CONDA_TOKEN": "s3cret"}
    document = completed(environ=conda)
    assert document["shell_env"] == {
        "PATH": "/venv/bin:/bin",
        "VIRTUAL_ENV": "/venv",
        "CONDA_PREFIX": "/conda",
        "CONDA_DEFAULT_ENV": "torch",
    }
    assert document["env"] == {}


def test_a_daemon_elsewhere_and_a_container_have_programs_of_their_own() -> None:
    assert "shell_env" not in completed(local=False)
    assert "shell_env" not in completed({"image": "i"})


def test_secrets_and_named_variables_come_from_the_shell() -> None:
    document = completed({"secrets": ["KEY", "OTHER"], "env_from_shell": "WANDB_PROJECT"}, local=False)
    assert document["env"] == {"KEY": "v", "WANDB_PROJECT": "p"}


def test_what_the_file_says_wins() -> None:
    assert completed({"env": {"KEY": "mine"}, "secrets": "KEY"})["env"] == {"KEY": "mine"}


def test_a_secret_that_is_named_as_a_plain_variable_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    completed({"env_from_shell": ["HF_TOKEN"]}, {"HF_TOKEN": "t"})
    assert "HF_TOKEN" in capsys.readouterr().err
    completed({"env_from_shell": ["HF_TOKEN"], "secrets": ["HF_TOKEN"]}, {"HF_TOKEN": "t"})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("wrong", [{"env": []}, {"secrets": 3}, {"env_from_shell": [1]}])
def test_what_is_wrong_is_left_for_the_daemon_to_say(wrong: dict[str, Any]) -> None:
    document = completed(wrong)
    assert all(document[key] == value for key, value in wrong.items())


def test_own_modules_are_those_of_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"PYTHONPATH": f"{tmp_path}/src:/opt/lib:"}
    assert completed(environ=environ, snapshot=True)["shell_env"]["PYTHONPATH"] == "src:/opt/lib"
    assert completed({"workdir": "sub"}, environ, snapshot=True)["shell_env"]["PYTHONPATH"] == "../src:/opt/lib"
    assert completed(environ=environ, snapshot=False)["shell_env"] == environ


def test_an_interpreter_is_found_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    python, named = program(tmp_path / "env/bin/python"), program(tmp_path / "bin/python3.99")
    environ = {"PATH": f"{tmp_path}/bin"}
    assert completed({"python": "env"}, environ)["python"] == str(python)
    assert completed({"python": str(python)}, environ)["python"] == str(python)
    assert completed({"python": "python3.99"}, environ)["python"] == str(named)
    with pytest.raises(Wrong, match=r"python3\.98"):
        completed({"python": "python3.98"}, environ)


def test_a_script_runs_with_python3_where_there_is_no_python(tmp_path: Path) -> None:
    python3 = program(tmp_path / "python3")
    environ = {"PATH": str(tmp_path)}
    document = {"script": "train.py"}
    complete(document, local=True, snapshot=False, environ=environ)
    assert document["python"] == str(python3)
    program(tmp_path / "python")
    document = {"script": "train.py"}
    complete(document, local=True, snapshot=False, environ=environ)
    assert "python" not in document


def test_it_reads_the_real_shell() -> None:
    document: dict[str, Any] = {"command": "a"}
    complete(document, local=True, snapshot=False)
    assert document["shell_env"]["PATH"] == os.environ["PATH"]
