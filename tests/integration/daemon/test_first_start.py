"""Whatever goes wrong at the first start, and in whatever state the daemon is: nobody gets in without the token."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT, Daemon, daemon, eventually

DRIVER = Path(__file__).with_name("first_start.py")
REFUSED = {"ready": True, "without": 401, "empty": 401, "with": 201}


def starts(directory: Path, kind: str) -> list[dict[str, Any]]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(directory), kind], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["kill", "full"])
def test_a_fault_at_any_file_of_the_first_start(tmp_path: Path, kind: str) -> None:
    found = starts(tmp_path, kind)
    places = " ".join(one["place"] for one in found)
    for name in ("token", "port", "daemon.json", "daemon.lock", "daemon.log", "swell.db", "sdk"):
        assert name in places, f"no fault was tried at {name}"
    for one in found:
        first = one["first"]
        assert first == REFUSED or not first["ready"], one
        if kind == "full" and not first["ready"]:
            assert "o space" in " ".join(first["said"]), one  # refused by name
        assert one["second"] == REFUSED, one


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_disk_of_any_size_that_is_too_small(tmp_path: Path) -> None:
    """Where the disk ends is where the first start ends; given space, the next one works, with a good token."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "swell-test", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine does not let us mount")
    try:
        for kib in (16, 24, 48, 96, 192, 384):
            subprocess.run(["mount", "-o", f"remount,size={kib}k", str(place)], check=True)
            home = place / "home"
            assert token_is_good_or_missing(home)
            ended = serve(home)
            assert token_is_good_or_missing(home), kib
            if ended is not None:
                assert "space" in ended or "full" in ended, ended
        subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
        with daemon(place / "home") as served:
            assert status(served, None) == 401
            assert served.get("/v1/jobs")["jobs"] == []
    finally:
        subprocess.run(["umount", str(place)], check=True)


def serve(home: Path, *options: str) -> str | None:
    """What a start that failed had to say; None for one that works, which is ended."""
    served = Daemon(home)
    served.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        [sys.executable, "-m", "swell", "serve", "--home", str(home), "--gpus", "1", *options],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        eventually(lambda: process.poll() is not None or (home / "daemon.json").exists(), 30, what="ready or ended")
        if process.poll() is None:
            process.kill()
            return None
        return process.stdout.read() if process.stdout else ""


def token_is_good_or_missing(home: Path) -> bool:
    path = home / "token"
    return not path.exists() or len(path.read_text()) == 64


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("empty", lambda home: (home / "token").write_text(""), "is empty"),
        ("short", lambda home: (home / "token").write_text("secret"), "6 characters"),
        ("readable", lambda home: (home / "token").chmod(0o644), "chmod 600"),
        ("home", lambda home: home.chmod(0o777), "chmod go-w"),
        ("link", lambda home: relink(home / "port"), "is a link"),
        ("lock", lambda home: relink(home / "daemon.lock"), "is a link"),
    ],
)
def test_a_home_that_is_not_safe_is_refused(tmp_path: Path, name: str, change: Any, says: str) -> None:
    home = tmp_path / "home"
    assert serve(home) is None
    change(home)
    (home / "daemon.json").unlink(missing_ok=True)
    said = serve(home)
    assert said is not None, f"served with {name}"
    assert says in said
    assert "Traceback" not in said


def test_listening_for_other_machines_needs_to_be_asked_for(tmp_path: Path) -> None:
    said = serve(tmp_path / "home", "--host", "0.0.0.0")
    assert said is not None
    assert "--insecure-listen" in said
    assert not (tmp_path / "home" / "token").exists()


def test_a_start_without_its_database_does_not_claim_to_go_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-m", "swell", "serve", "--home", str(home)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command += ["--database", "postgresql://nobody@127.0.0.1:1/x"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "did not start" in done.stderr
    assert "start it again" in done.stderr
    assert "tried again" not in done.stderr


def test_the_address_of_ipv6_can_be_used(tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with daemon(tmp_path / "home", args=("--host", "::1")) as served:
        assert served.address[0] == "::1"
        assert served.get("/v1/jobs")["jobs"] == []


def relink(path: Path) -> None:
    """As somebody would who wants the daemon to write elsewhere."""
    path.replace(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


# -- no state without a token -----------------------------------------------------------------------------------------


def status(served: Daemon, authorization: str | None) -> int | None:
    """Of a request that would run a command; None if nobody answers."""
    headers = {} if authorization is None else {"Authorization": authorization}
    connection = http.client.HTTPConnection(*served.address, timeout=20)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/v1/jobs", body=b'{"command": "true"}', headers=headers)
        return connection.getresponse().status
    return None


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path / "home") as one:
        yield one


def nobody_gets_in(served: Daemon) -> None:
    for authorization in (None, "", "Bearer", "Bearer ", "bearer \t", "Basic Og==", "Bearer None"):
        assert status(served, authorization) == 401, authorization


def test_nobody_gets_in_while_it_is_ready_nor_after_its_token_was_emptied(served: Daemon) -> None:
    nobody_gets_in(served)
    token = served.token
    (served.home / "token").write_text("")
    nobody_gets_in(served)
    assert status(served, f"Bearer {token}") == 201
    (served.home / "token").unlink()
    nobody_gets_in(served)


def test_nobody_gets_in_while_it_starts(tmp_path: Path) -> None:
    """From the first moment that somebody can connect: a request sent then is answered once it is up."""
    served = Daemon(tmp_path / "home")
    served.start()
    port = served.address[1]
    served.kill()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen([sys.executable, "-m", "swell", "serve", "--home", str(served.home)], env=env)
    try:
        answers: list[int] = []

        def answered() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/v1/jobs")
                answers.append(connection.getresponse().status)
            return bool(answers)

        eventually(answered, 30, what="an answer", every_s=0.001)
        assert answers == [401]
    finally:
        process.kill()
        process.wait()


def test_nobody_gets_in_while_it_stops(served: Daemon) -> None:
    """A stream that is open holds the stop up for a moment; connections kept from before still get no further."""
    kept = http.client.HTTPConnection(*served.address, timeout=20)
    kept.request("GET", "/v1/jobs")
    assert kept.getresponse().read()
    stream = http.client.HTTPConnection(*served.address, timeout=20)
    stream.request("GET", "/v1/events", headers={"Authorization": f"Bearer {served.token}"})
    followed = stream.getresponse()
    assert served.process is not None
    served.process.send_signal(signal.SIGTERM)
    seen: set[int | None] = set()
    while served.process.poll() is None:
        with contextlib.suppress(FileNotFoundError):  # the address goes with the daemon
            seen.add(status(served, None))
        with contextlib.suppress(OSError, http.client.HTTPException):
            kept.request("POST", "/v1/jobs", body=b'{"command": "true"}')
            with kept.getresponse() as answer:
                seen.add(answer.status)
    assert seen <= {401, None}
    for opened in (kept, followed, stream):
        opened.close()


def test_nobody_gets_in_while_nothing_can_be_stored(tmp_path: Path) -> None:
    """Every commit fails, as on a full disk."""
    with daemon(tmp_path / "home") as served:
        limit_files(served)
        assert status(served, f"Bearer {served.token}") == 507
        nobody_gets_in(served)


def limit_files(served: Daemon) -> None:
    """From now on no file of the daemon may grow, as on a full disk."""
    assert served.process is not None
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
