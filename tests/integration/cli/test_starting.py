"""What a new user does wrong before the first job: the daemon's address, its home and its configuration."""

import json
import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from harness import eventually
from integration.cli.conftest import Shell


def is_alive(pid: int) -> bool:
    """A zombie, which nobody reaped yet, has ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_port_that_is_taken_is_named(alone: Shell) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = alone("up", "--port", port, code=3).err
    assert f"port {port} of 127.0.0.1" in said
    assert "another program listens there; choose another --port" in said
    assert "Errno" not in said
    assert "no address of this machine" in alone("up", "--host", "192.0.2.1", "--insecure-listen", code=3).err


@pytest.mark.parametrize("with_a_job", [False, True], ids=["idle", "running"])
def test_a_daemon_whose_home_was_deleted_ends(alone: Shell, with_a_job: bool) -> None:
    """Also while a job runs, whose shim makes the directory anew."""
    alone("up", "--gpus", 1)
    pid = json.loads((alone.home / "daemon.json").read_text())["pid"]
    if with_a_job:
        alone("run", "-d", "--gpus", 0, "--", "sleep 8")
        time.sleep(1.0)
    output = os.open(alone.home / "daemon.log", os.O_RDONLY)
    shutil.rmtree(alone.home, ignore_errors=True)
    shutil.rmtree(alone.home, ignore_errors=True)
    eventually(lambda: not is_alive(pid), 40, what="the daemon ends", every_s=0.2)
    log = os.pread(output, 1 << 20, 0).decode()
    os.close(output)
    assert f"{alone.home} was deleted" in log
    assert "no daemon is running" in alone("ls", code=3).err
    assert "swell is up" in alone("up", "--gpus", 1).out


def test_a_home_that_cannot_be_one_is_told_in_words(alone: Shell) -> None:
    alone.home.write_text("a file")
    said = alone("up", code=2).err
    assert f"{alone.home} is no directory; name one with --home or SWELL_HOME" in said
    assert "Errno" not in alone("up", "--home", "/proc/nope", code=2).err
    alone.home.unlink()


def test_a_mistake_in_the_configuration_is_told_with_its_line(alone: Shell) -> None:
    alone.home.mkdir(mode=0o700)
    (alone.home / "config.yaml").write_text("policy: swell\ngpus: [\n")
    said = alone("up", code=3).err
    assert "config.yaml is not valid YAML, line 3, column 1" in said
    assert said.count("\n") == 1


def test_an_address_that_is_none_is_told_so(alone: Shell) -> None:
    for url in ("nonsense", "ftp://host:1", "http://host:port"):
        shell = Shell(alone.home, alone.work, {"SWELL_URL": url, "SWELL_TOKEN": "x"})
        assert f"'{url}' is no address of a daemon; write it as `swell up` printed it" in shell("ls", code=3).err
    nobody = Shell(alone.home, alone.work, {"SWELL_URL": "http://127.0.0.1:9", "SWELL_TOKEN": "x"})
    said = nobody("ls", code=3).err
    assert "does not answer (Connection refused); check this address" in said


def test_a_wrong_token_is_answered_without_rest(alone: Shell) -> None:
    alone("up", "--gpus", 1)
    url = json.loads((alone.home / "daemon.json").read_text())["url"]
    said = Shell(alone.home, alone.work, {"SWELL_URL": url, "SWELL_TOKEN": "x" * 64})("ls", code=2).err
    assert "the token is wrong; `swell login`" in said
    assert "Bearer" not in said


def test_a_directory_that_was_deleted_under_the_shell_is_named(alone: Shell) -> None:
    alone("up", "--gpus", 1)
    gone = alone.work / "gone"
    gone.mkdir()
    process = Shell(alone.home, gone).start("run", "--gpus", 0, "--", "sleep 0; true")
    gone.rmdir()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"the directory that you are in was deleted; `cd` to one that is there" in err
