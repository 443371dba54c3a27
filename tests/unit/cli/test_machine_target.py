"""How people name a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.cli.machine_target import NotATarget, from_file, machine, parse


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("ada@gpu1", {"name": "gpu1", "host": "gpu1", "user": "ada"}),
        ("ada@gpu1.lab.example:2222", {"name": "gpu1", "host": "gpu1.lab.example", "user": "ada", "port": 2222}),
        ("10.0.0.7", {"name": "10.0.0.7", "host": "10.0.0.7"}),
        ("ada@[fe80::1]:22", {"name": "fe80--1", "host": "fe80::1", "user": "ada", "port": 22}),
        ("lab", {"name": "lab", "host": "lab"}),
    ],
)
def test_targets(target: str, found: dict[str, object]) -> None:
    assert parse(target) == found


@pytest.mark.parametrize(
    "target", ["", "@gpu1", "ada@", "a@b@c", "gpu1:ssh", "gpu1:0", "gpu1:70000", "-oProxyCommand=x"]
)
def test_what_names_no_machine_is_refused_with_what_to_write(target: str) -> None:
    with pytest.raises(NotATarget, match=r"write user@host|from 1 to 65535"):
        parse(target)


def test_files_come_before_names_and_the_path_before_local_var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = tmp_path / ".local" / "var"
    kept.mkdir(parents=True)
    (kept / "gpu1.yaml").write_text("username: far\nip: 10.0.0.1\n")
    assert machine("gpu1")["user"] == "far"
    (tmp_path / "gpu1.yaml").write_text("username: near\nip: 10.0.0.1\nport: 2200\nssh_key_path: ~/.ssh/id\n")
    assert machine("gpu1") == {
        "name": "gpu1",
        "user": "near",
        "host": "10.0.0.1",
        "port": 2200,
        "key_file": "~/.ssh/id",
    }
    assert machine("ada@gpu1") == {"name": "gpu1", "host": "gpu1", "user": "ada"}
    assert machine("gpu2") == {"name": "gpu2", "host": "gpu2"}


@pytest.mark.parametrize("target", ["gpu9.yaml", "example/machine", "./gpu1"])
def test_a_file_that_is_not_there_is_taken_for_no_host(target: str) -> None:
    with pytest.raises(NotATarget, match="there is no machine file"):
        machine(target)


@pytest.mark.parametrize(
    "text", ["", "just words", "username: a\n", "ip: b\nusername: a\npassword: c\n", "{", "port: [1]"]
)
def test_files_that_are_no_machine_files_say_which_lines_they_need(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    with pytest.raises(NotATarget, match="no machine file"):
        from_file(path)
