"""What `swell node add` finds out about a machine, on real ones: each check with its fix if it fails."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from ssh.machines import Machine, run
from swell.core.resources import Node, Ssh, fingerprint
from swell.executors.ssh.checks import check_machine
from swell.ports import Check, Verdict

New = Callable[..., Machine]
NAMES = ["ssh", "host key", "sessions", "clock", "python3", "disk", "space", "gpus", "logout"]


def declared(machine: Machine, **changed: object) -> Node:
    ssh = Ssh(host=machine.address, user="ada", key_file=str(machine.key))
    return Node(name=machine.name, executor="ssh", ssh=replace(ssh, **changed))  # type: ignore[arg-type]


def checked(node: Node) -> tuple[dict[str, Check], Node | None]:
    async def made() -> list[Check | Node]:
        return [item async for item in check_machine(node)]

    items = asyncio.run(made())
    node_found = next((item for item in items if isinstance(item, Node)), None)
    return {item.name: item for item in items if isinstance(item, Check)}, node_found


def failed(checks: dict[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if check.verdict is Verdict.FAILED]


def test_a_good_machine_passes_all_checks_within_15_s_and_nothing_is_left_on_it(new_machine: New) -> None:
    machine = new_machine(gpus=4)
    machine.occupy(1)
    machine.occupy(3)
    began = time.monotonic()
    checks, node = checked(declared(machine))
    took_s = time.monotonic() - began
    print(f"checked in {took_s:.2f} s")
    assert took_s < 15
    assert list(checks) == NAMES
    assert failed(checks) == []
    assert fingerprint(machine.host_key) in checks["host key"].words
    assert checks["gpus"].words == "4 x A100 (40 GiB); 2 of 4 GPUs busy with others' work, left alone"
    assert node is not None
    assert node.ssh is not None
    assert (node.address, node.ssh.host_key) == (machine.address, machine.host_key)
    assert [gpu.uuid for gpu in node.usable_gpus()] == ["GPU-gpu1-0", "GPU-gpu1-2"]
    assert list(machine.home().iterdir()) == []
    assert [line for line in machine.commands() if "sleep 100000" not in line] == []


def test_a_changed_host_key_is_refused_and_named(new_machine: New) -> None:
    machine = new_machine()
    pinned = declared(machine, host_key=machine.host_key)
    assert failed(checked(pinned)[0]) == []
    machine.kill_sshd()
    machine.new_host_key()
    machine.start_sshd()
    checks, node = checked(pinned)
    assert node is None
    assert list(checks) == ["ssh"]
    assert "another host key" in checks["ssh"].words
    assert "ask its administrator" in checks["ssh"].fix


@pytest.mark.parametrize("user", ["ada", "nobody-of-that-name"])
def test_a_login_that_is_denied_says_how_to_let_the_key_in(new_machine: New, tmp_path: Path, user: str) -> None:
    machine = new_machine()
    wrong = tmp_path / "wrong"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(wrong))
    key = wrong if user == "ada" else machine.key
    checks, node = checked(declared(machine, user=user, key_file=str(key)))
    assert node is None
    assert user in checks["ssh"].words
    assert f"ssh-copy-id -i {key}.pub {user}@{machine.address}" in checks["ssh"].fix


def test_a_key_that_is_not_there_or_has_a_passphrase_is_named(new_machine: New, tmp_path: Path) -> None:
    machine, locked = new_machine(), tmp_path / "locked"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", str(locked))
    for key in (tmp_path / "missing", locked):
        checks, _ = checked(declared(machine, key_file=str(key)))
        assert str(key) in checks["ssh"].words
        assert "--key" in checks["ssh"].fix


def test_a_port_that_refuses_and_a_name_that_nobody_knows_say_what_to_do(new_machine: New) -> None:
    machine = new_machine()
    refused = checked(declared(machine, port=2222))[0]["ssh"]
    assert "2222" in refused.words
    assert "sshd runs there" in refused.fix
    unknown = checked(declared(machine, host="no-such-host.invalid"))[0]["ssh"]
    assert "no-such-host.invalid" in unknown.words
    assert "spelling" in unknown.fix


def test_something_that_speaks_no_ssh_is_told_apart(new_machine: New) -> None:
    machine = new_machine()
    with socket.create_server((machine.network.gateway, 0)) as server:
        server.listen()
        port = server.getsockname()[1]

        def greet() -> None:
            client, _ = server.accept()
            client.sendall(b"220 mail.example ESMTP\r\n" * 2000)
            client.close()

        Thread(target=greet, daemon=True).start()
        check = checked(declared(machine, host=machine.network.gateway, port=port))[0]["ssh"]
    assert check.verdict is Verdict.FAILED
    assert str(port) in check.words


def test_a_machine_that_does_not_answer_fails_within_its_time_out(new_machine: New) -> None:
    machine = new_machine()
    machine.cut()
    began = time.monotonic()
    check = checked(declared(machine))[0]["ssh"]
    assert time.monotonic() - began < 15
    assert "does not answer" in check.words
    assert "firewall" in check.fix


def test_python_that_is_missing_or_too_old_is_refused_with_a_fix(new_machine: New) -> None:
    machine = new_machine()
    checks, _ = checked(declared(machine, python="/opt/none/python3"))
    assert failed(checks) == ["python3"]
    assert "--python" in checks["python3"].fix
    old = machine.dir / "bin" / "python3"
    old.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.6.8' && exit 0\nexit 1\n")
    old.chmod(0o755)
    checks, _ = checked(declared(machine))
    assert checks["python3"].words == "Python 3.6.8 is older than 3.8"


def test_a_full_disk_is_refused_and_a_better_one_named(new_machine: New) -> None:
    small = "mount -t tmpfs -o size=20m,uid=21001 none /home/ada"
    checks, node = checked(declared(new_machine(mounts=[small])))
    assert node is None
    assert failed(checks) == ["space"]
    assert "--root /" in checks["space"].fix


def test_a_machine_that_kills_processes_at_logout_is_found_out(new_machine: New) -> None:
    """As systemd-logind does with KillUserProcesses=yes: whatever the session started dies with it."""
    force = 'sh -c "$SSH_ORIGINAL_COMMAND"; for p in $(ps -o pid=,comm= -u ada | awk \'$2 != "sshd" {print $1}\'); do'
    machine = new_machine(sshd=[f"ForceCommand {force} [ $p = $$ ] || kill -9 $p; done"])
    checks, node = checked(declared(machine))
    assert node is None
    assert failed(checks) == ["logout"]
    assert "loginctl enable-linger ada" in checks["logout"].fix


def test_a_server_that_opens_no_session_is_told_apart_and_one_session_is_enough(new_machine: New) -> None:
    checks, node = checked(declared(new_machine(sshd=["MaxSessions 0"])))
    assert node is None
    assert failed(checks) == ["sessions"]
    assert "MaxSessions" in checks["sessions"].fix
    assert failed(checked(declared(new_machine(sshd=["MaxSessions 1"])))[0]) == []


def test_a_shell_that_prints_before_every_command_is_refused_with_the_line_that_mends_it(new_machine: New) -> None:
    """The agent speaks on its standard output: a greeting there would be taken for its words."""
    machine = new_machine(gpus=1, sshd=['ForceCommand echo Welcome to the lab; sh -c "$SSH_ORIGINAL_COMMAND"'])
    checks, node = checked(declared(machine))
    assert node is None
    assert failed(checks) == ["sessions"]
    assert "Welcome to the lab" in checks["sessions"].words
    assert "~/.bashrc" in checks["sessions"].fix


def test_a_broken_driver_and_no_driver_are_notes(new_machine: New) -> None:
    machine = new_machine(gpus=1)
    machine.set_gpus([], driver=False)
    checks, node = checked(declared(machine))
    assert (checks["gpus"].verdict, node is not None) == (Verdict.NOTE, True)
    assert "nvidia-smi fails" in checks["gpus"].words
    (machine.dir / "bin" / "nvidia-smi").unlink()
    assert "no nvidia-smi" in checked(declared(machine))[0]["gpus"].words


def test_an_alias_of_ssh_config_with_a_jump_is_followed(
    new_machine: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jump = new_machine("jump", sshd=["AllowTcpForwarding yes"])
    inner = new_machine("inner", gpus=1)
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    lines = [
        *("Host jump", f"  HostName {jump.address}", "  User ada", f"  IdentityFile {jump.key}"),
        *("Host inner", f"  HostName {inner.address}", "  User ada", f"  IdentityFile {inner.key}", "  ProxyJump jump"),
    ]
    (home / ".ssh" / "config").write_text("\n".join(lines) + "\n")
    (home / ".ssh" / "known_hosts").write_text(f"{jump.address} {jump.host_key}\n")
    monkeypatch.setenv("HOME", str(home))
    node = Node(name="inner", executor="ssh", ssh=Ssh(host="inner", config_host="inner"))
    checks, found = checked(node)
    assert failed(checks) == []
    assert found is not None
    assert found.address == inner.address
    assert "ada" in checks["ssh"].words
