"""Jobs as their submitters: two real users of this machine, one daemon, and nothing of the one within reach of the
other or of the daemon's own files."""

import hashlib
import io
import os
import pwd
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Daemon, daemon, eventually
from swell.shim import limits
from swell.shim.members import own_place

ANA, BO = "games", "daemon"
"""Users that every Debian has."""


def _missing() -> str:
    if os.geteuid() != 0:
        return "only root can start processes of others"
    missing = {ANA, BO} - {account.pw_name for account in pwd.getpwall()}
    return f"this machine has no user {', '.join(sorted(missing))}" if missing else ""


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing())


@pytest.fixture
def served() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="swell-run-as-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "home"
        home.mkdir()
        (home / "config.yaml").write_text("run_as: submitter\n")
        with daemon(home) as running:
            yield running


def tar_of(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def ran(served: Daemon, user: str, script: str, **fields: Any) -> tuple[str, int]:
    """What a job of this user printed, and its id."""
    (job,) = served.submit(user=user, command=["sh", "-c", script], **fields)
    eventually(lambda: served.get(f"/v1/jobs/{job}")["ended_s"], 60, what=f"job {job} ends")
    return (served.home / f"runs/{job}.1/0/log").read_text(), job


def test_a_job_is_its_users_process_in_a_directory_of_their_own(served: Daemon) -> None:
    out, job = ran(
        served, ANA, 'id -un; echo "$USER $HOME"; echo data > made; mkdir -p "$SWELL_CHECKPOINT_DIR/x" && echo saved'
    )
    account = pwd.getpwnam(ANA)
    assert out.splitlines() == [ANA, f"{ANA} {account.pw_dir}", "saved"]
    assert (served.home / f"work/{job}/made").stat().st_uid == account.pw_uid


def test_the_library_of_a_users_job_notes_its_progress(served: Daemon) -> None:
    out, job = ran(
        served, ANA, 'test -r "$PYTHONPATH/swell/__init__.py" && echo "3 3 0" >> "$SWELL_JOURNAL" && echo noted'
    )
    assert out == "noted\n"
    assert served.get(f"/v1/jobs/{job}")["state"] == "completed"


def test_nothing_of_the_daemon_or_of_another_user_can_be_read(served: Daemon) -> None:
    _, theirs = ran(served, BO, "echo hush; echo hush > secret", env={"KEY": "hush"})
    home = served.home
    targets = [
        home / "token",
        home / "swell.db",
        home / "daemon.json",
        home / "files",
        home / f"work/{theirs}/secret",
        home / f"work/{theirs}",
        home / f"runs/{theirs}.1/0/log",
        home / f"runs/{theirs}.1/0/request.json",
        home / f"runs/{theirs}.1/epochs",
        home / f"checkpoints/{theirs}",
        f"/proc/{served.process.pid if served.process else 0}/environ",
    ]
    tried = "; ".join(f"cat '{path}' 2>/dev/null || ls '{path}/' 2>/dev/null" for path in targets)
    out, _ = ran(served, ANA, f"{tried}; ls {home} {home}/work {home}/runs 2>/dev/null; echo end")
    assert out == "end\n"


def test_another_users_environment_cannot_be_read_while_it_runs(served: Daemon) -> None:
    (job,) = served.submit(user=BO, command=["sh", "-c", "echo $$; exec sleep 60"], env={"KEY": "hush"})
    log = served.home / f"runs/{job}.1/0/log"
    eventually(lambda: log.exists() and log.read_text().endswith("\n"), 30, what="the other job runs")
    pid = log.read_text().strip()
    out, _ = ran(served, ANA, f"cat /proc/{pid}/environ 2>/dev/null; kill -9 {pid} 2>/dev/null || echo kept")
    assert out == "kept\n"
    served.post(f"/v1/jobs/{job}/cancel")
    eventually(lambda: served.get(f"/v1/jobs/{job}")["ended_s"], 60, what="a job of another user is cancelled")


WITHIN_LIMITS = pytest.mark.skipif(
    not {"memory", "pids"} <= {name for name in limits.CONTROLLERS if own_place(name)},
    reason="no cgroups of memory and pids (v1) may be made here",
)


@WITHIN_LIMITS
def test_a_job_gets_no_more_memory_than_it_asked_for(served: Daemon) -> None:
    greedy = "exec dd if=/dev/zero of=/dev/null bs=300M count=1"
    out, job = ran(served, ANA, greedy, memory="100MiB")
    record = served.get(f"/v1/jobs/{job}")
    assert (out, record["state"], record["exit_reason"]) == ("", "failed", "out-of-memory")
    assert "300 MiB" in ran(served, ANA, greedy, memory="1GiB")[0]


@WITHIN_LIMITS
def test_a_job_cannot_fill_the_machine_with_processes_nor_lift_its_limits(served: Daemon) -> None:
    show = "p=/sys/fs/cgroup/pids$(grep :pids: /proc/self/cgroup | cut -d: -f3); cat $p/pids.max"
    out, _ = ran(served, ANA, f"{show}; echo max 2>/dev/null > $p/pids.max || echo held; basename $p")
    assert [int(out.split()[0]) <= limits.MAX_PIDS, out.split()[1]] == [True, "held"]
    mark = out.split()[2].removeprefix("swell-")
    eventually(lambda: not any(map(os.path.exists, limits.groups(mark))), 30, what="groups of ended runs are removed")


def test_a_second_attempt_changes_no_owner(served: Daemon) -> None:
    """A user who links to a file of somebody else does not get it with the next attempt."""
    foreign = served.home / "foreign"
    foreign.write_text("not yours")
    script = f"ln -s {foreign} $PWD/link; test -e again || {{ touch again; kill -9 $$; }}; echo done"
    (job,) = served.submit(user=ANA, command=["sh", "-c", script], retries=2, backoff=0)
    eventually(lambda: served.get(f"/v1/jobs/{job}")["ended_s"], 60, what="the second attempt ends")
    assert served.get(f"/v1/jobs/{job}")["attempts"] == 2
    assert foreign.stat().st_uid == 0


@pytest.mark.parametrize(
    ("fields", "said"), [({"user": "nobody-here"}, "has no user"), ({"user": ANA, "image": "x"}, "image")]
)
def test_what_cannot_run_as_its_submitter_is_refused_at_submit(
    served: Daemon, fields: dict[str, str], said: str
) -> None:
    status, answer = served.request("POST", "/v1/jobs", {"command": "true", **fields})
    assert status == 422
    assert said in answer["detail"]


def test_a_root_daemon_never_tells_which_files_of_others_there_are(served: Daemon) -> None:
    data = tar_of({"here.py": ""})
    content_hash = hashlib.sha256(data).hexdigest()
    served.request("PUT", f"/v1/files/{content_hash}", data)
    secret = served.home / "secret"
    secret.write_text("")
    told = {
        served.request("POST", "/v1/jobs", {"script": str(path), "files": content_hash, "user": ANA})[0]
        for path in (secret, served.home / "none")
    }
    assert len(told) == 1


def test_a_root_daemon_never_copies_outputs_into_directories_that_users_name(served: Daemon) -> None:
    with pytest.raises(Exception, match="copies nothing for them"):
        served.submit(user=ANA, command=["true"], outputs=["*"], outputs_to="/etc/cron.d")
