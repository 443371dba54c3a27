"""Two real users of this machine share one daemon by its Unix socket: the kernel says who they are."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Daemon, daemon
from swell.client.errors import Refused
from swell.client.find import Address
from swell.client.http import Client

ANA, BO = 23_457, 23_458
"""Numbers that nobody has: the daemon calls such users uid-23457."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def shared() -> Iterator[str]:
    """A directory that other users may look into."""
    with tempfile.TemporaryDirectory(prefix="swell-people-") as folder:
        Path(folder).chmod(0o755)
        yield f"unix:{folder}/socket"


@pytest.fixture
def served(tmp_path: Path, shared: str) -> Iterator[Daemon]:
    with daemon(tmp_path / "home", args=("--socket", shared.removeprefix("unix:"))) as running:
        yield running


def as_user(uid: int, url: str, ask: Callable[[Client], Any], user: str = "") -> Any:
    """What `ask` gets in a process of this user. The client claims to be `user`."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            try:
                answer: Any = ask(Client(Address(url=url, token="", local=False), user=user))
            except Refused as refused:
                answer = {"refused": refused.status, "detail": str(refused)}
            os.write(write, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def submitted(client: Client) -> Any:
    return client.post("/v1/jobs", {"command": "echo hush", "env": {"KEY": "hush"}})["ids"][0]


def test_the_kernel_names_the_caller_whatever_the_client_claims(served: Daemon, shared: str) -> None:
    who = as_user(ANA, shared, lambda client: client.get("/v1/whoami"), user="root")
    assert who == {"user": f"uid-{ANA}", "role": "submitter", "team": "", "by": "socket"}
    owner = as_user(0, shared, lambda client: client.get("/v1/whoami"))
    assert (owner["role"], owner["by"]) == ("admin", "owner")


def test_neither_user_reads_or_stops_what_the_other_runs(served: Daemon, shared: str) -> None:
    job = as_user(ANA, shared, submitted)
    for path in ("", "/logs", "/files", "/runs", "/explain", "/series"):
        answer = as_user(BO, shared, lambda client, path=path: client.get(f"/v1/jobs/{job}{path}"))  # type: ignore[misc]
        assert answer["refused"] == 403, path
        assert f"belongs to uid-{ANA}" in answer["detail"]
        assert "hush" not in answer["detail"]
    assert as_user(BO, shared, lambda client: client.act(job, "cancel"))["refused"] == 403
    lines = as_user(BO, shared, lambda client: client.get("/v1/jobs")["jobs"])
    assert [(line["id"], line["user"], line["files"]) for line in lines] == [(job, f"uid-{ANA}", "")]
    assert as_user(ANA, shared, lambda client: client.get(f"/v1/jobs/{job}"))["spec"]["command"]


def test_the_daemons_own_files_are_closed_to_other_users(served: Daemon, shared: str, tmp_path: Path) -> None:
    def look(_: Client) -> Any:
        return [os.access(tmp_path / "home" / name, os.R_OK) for name in ("token", "swell.db", "runs", "work")]

    assert as_user(ANA, shared, look) == [False] * 4


def test_a_wrong_token_by_the_socket_is_not_the_peer_without_one(served: Daemon, shared: str) -> None:
    def ask(_: Client) -> Any:
        return Client(Address(url=shared, token="wrong" * 10, local=False)).get("/v1/whoami")

    assert as_user(ANA, shared, ask)["refused"] == 401


def test_an_operator_by_the_socket_is_one_who_was_added(served: Daemon, shared: str) -> None:
    job = as_user(ANA, shared, submitted)
    served.request("PUT", f"/v1/users/uid-{BO}", {"role": "operator"})
    assert as_user(BO, shared, lambda client: client.get(f"/v1/jobs/{job}"))["id"] == job
    assert as_user(BO, shared, lambda client: client.get("/v1/tokens"))["tokens"] == []
