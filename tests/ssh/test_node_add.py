"""`swell node add`: a person, a terminal, a daemon and machines with nothing but sshd."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from harness import Daemon
from ssh.machines import Machine
from ssh.shell import Shell
from swell.core.resources import fingerprint

New = Callable[..., Machine]


def node(served: Daemon, name: str) -> dict[str, object]:
    found: dict[str, object] = next(node for node in served.get("/v1/nodes")["nodes"] if node["name"] == name)
    return found


def test_a_machine_is_added_in_under_15_s_and_each_check_is_shown(new_machine: New, served: Daemon, sh: Shell) -> None:
    machine = new_machine(gpus=4)
    machine.occupy(0)
    began = time.monotonic()
    said = sh("node", "add", f"ada@{machine.address}", "--key", machine.key, "--name", "gpu1", "--label", "rack=a")
    assert time.monotonic() - began < 15
    lines = [line.split() for line in said.splitlines() if line]
    assert [line[:2] for line in lines[:9]] == [
        *(["ok", name] for name in ("ssh", "host", "sessions", "clock", "python3", "disk", "space")),
        *(["note", "gpus"], ["ok", "logout"]),
    ]
    assert fingerprint(machine.host_key) in said
    assert "1 of 4 GPUs busy with others' work, left alone" in said
    assert lines[-1][:1] == ["gpu1"]
    assert node(served, "gpu1")["labels"] == {"rack": "a"}


def test_a_machine_that_fails_a_check_is_not_added_and_the_fix_is_shown(
    new_machine: New, served: Daemon, sh: Shell
) -> None:
    machine = new_machine(sshd=["MaxSessions 0"])
    said = sh("node", "add", f"ada@{machine.address}", "--key", machine.key, "--name", "gpu1", code=1)
    assert "failed sessions sshd opens no session" in " ".join(said.split())
    assert "fix: set MaxSessions" in said
    assert "gpu1 was not added" in said
    assert "gpu1" not in [each["name"] for each in served.get("/v1/nodes")["nodes"]]


def test_a_machine_whose_host_key_changed_is_refused_when_it_is_added_again(
    new_machine: New, served: Daemon, sh: Shell
) -> None:
    machine = new_machine(gpus=1)
    add = ("node", "add", f"ada@{machine.address}", "--key", machine.key, "--name", "gpu1")
    sh(*add)
    assert "as pinned before" in sh(*add)
    machine.kill_sshd()
    machine.new_host_key()
    machine.start_sshd()
    assert "presents another host key than the one pinned for it" in sh(*add, code=1)


def test_a_machine_file_of_four_lines_is_found_by_path_by_name_and_in_local_var(
    new_machine: New, sh: Shell, user_home: Path
) -> None:
    machine = new_machine(gpus=1)
    text = f"username: ada\nip: {machine.address}\nport: 22\nssh_key_path: {machine.key}\n"
    (sh.work / "one.yaml").write_text(text)
    kept = user_home / ".local" / "var"
    kept.mkdir(parents=True)
    (kept / "two.yaml").write_text(text)
    for target, name in (("one.yaml", "one"), ("one", "one"), ("two", "two")):
        added = json.loads(sh("node", "add", target, "--json"))
        assert (added["added"], added["name"]) == (True, name)
    (sh.work / "bad.yaml").write_text("username: ada\nadress: 10.0.0.1\n")
    assert "username, ip, port, ssh_key_path" in sh("node", "add", "bad", code=2)


def test_an_alias_of_ssh_config_is_enough(new_machine: New, sh: Shell, user_home: Path) -> None:
    machine = new_machine(gpus=1)
    lines = ("Host lab", f"  HostName {machine.address}", "  User ada", f"  IdentityFile {machine.key}")
    (user_home / ".ssh" / "config").write_text("\n".join(lines) + "\n")
    added = json.loads(sh("node", "add", "lab", "--json"))
    assert (added["added"], added["node"]["address"]) == (True, machine.address)


def test_slots_on_the_daemons_machine_are_declared_as_before(served: Daemon, sh: Shell) -> None:
    sh("node", "add", "spare", "--gpus", 2, "--gpu-type", "A100")
    assert node(served, "spare")["gpus_total"] == 2
    assert "leave out --gpus" in sh("node", "add", "other", "--gpus", 2, "--key", "/k", code=2)
    assert "is measured" in sh("node", "add", "ada@other", "--cpus", 2, code=2)
