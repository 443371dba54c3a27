"""`swell user`, `token`, `login`, `whoami`: an admin lets a colleague in, who then has what they were given."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness import eventually
from integration.cli.conftest import Shell


@pytest.fixture
def colleague(sh: Shell, tmp_path: Path) -> Shell:
    """Somebody with a home of their own, in which no daemon runs."""
    (tmp_path / "colleague").mkdir()
    return replace(sh, home=tmp_path / "colleague" / ".swell", work=tmp_path / "colleague")


def test_a_colleague_is_let_in_works_and_is_shut_out_again(sh: Shell, colleague: Shell) -> None:
    url = json.loads(sh("up", "--json").out)["url"]
    assert "belongs to whoever started it" in sh("user", "ls").out
    assert "ana is a submitter in team vision" in sh("user", "add", "ana", "--team", "vision").out
    made = sh("token", "new", "--user", "ana", "--note", "laptop")
    assert "revoke" in made.err
    token = made.out.strip()
    assert f"token in {sh.home / 'token'}" in sh("up").out
    assert "logged in" in colleague("login", url, stdin=f"{token}\n".encode()).out
    assert colleague("whoami").out.strip() == "ana, submitter in team vision (known by token)"
    assert token not in colleague("token", "ls").out
    assert "token in" not in colleague("up").out
    job = json.loads(colleague("run", "-d", "--json", "--", "echo", "hello").out)
    assert json.loads(sh("ls", "--all", "--json").out)[0]["user"] == "ana", job
    refused = colleague("user", "add", "bo", code=2)
    assert "this needs the role admin" in refused.err
    refused = colleague("policy", "fifo", code=2)
    assert "this needs the role operator" in refused.err
    ids = [one["id"] for one in json.loads(sh("token", "ls", "--json").out)]
    sh("token", "revoke", *ids)
    assert "the token is wrong" in colleague("whoami", code=2).err


def test_mine_are_the_jobs_of_whom_the_daemon_takes_me_for_not_of_my_name_on_this_machine(
    alone: Shell, tmp_path: Path
) -> None:
    url = json.loads(alone("up", "--gpus", "0", "--json").out)["url"]
    alone("user", "add", "ana")
    ana = replace(alone, home=tmp_path / "ana")
    ana("login", url, stdin=alone("token", "new", "--user", "ana").out.encode())
    theirs, hers = (sh("run", "-d", "--gpus", 0, "--", "sleep", "600").out.split()[1] for sh in (alone, ana))
    assert [str(job["id"]) for job in json.loads(ana("ls", "--mine", "--json").out)] == [hers]
    assert [str(job["id"]) for job in json.loads(ana("history", "--mine", "--json").out)] == [hers]
    assert json.loads(ana("cancel", "--mine", "--json").out)["cancelled"] == [int(hers)]
    assert [str(job["id"]) for job in json.loads(alone("ls", "--mine", "--json").out)] == [theirs]
    alone("cancel", "--all", "--now")
    alone("wait", theirs, hers, code=1)
    assert json.loads(ana("rm", "--ended", "--mine", "--yes", "--json").out)["removed"] == [int(hers)]


def test_a_wrong_token_leaves_no_login_behind(sh: Shell, colleague: Shell) -> None:
    url = json.loads(sh("up", "--json").out)["url"]
    assert "the token is wrong" in colleague("login", url, stdin=b"nonsense\n", code=2).err
    assert not (colleague.home / "login.json").exists()


def test_limits_are_shown_by_quota_and_a_submission_beyond_them_says_what_to_do(alone: Shell, tmp_path: Path) -> None:
    alone.home.mkdir(mode=0o700)
    settings = {
        "options": {"limits": {"queued": 2, "running": 1}, "quotas": {"vision": {"gpus": 1}}, "budgets": {"vision": 9}}
    }
    (alone.home / "config.yaml").write_text(json.dumps(settings))
    url = json.loads(alone("up", "--gpus", "4", "--json").out)["url"]
    alone("user", "add", "ana", "--team", "vision")
    ana = replace(alone, home=tmp_path / "ana")
    ana("login", url, stdin=alone("token", "new", "--user", "ana").out.encode())
    ana("run", "-d", "--gpus", "1", "--", "sleep", "600")
    eventually(lambda: json.loads(ana("quota", "--json").out)["user"]["use"]["running"] == 1, 60)
    for _ in range(2):
        ana("run", "-d", "--gpus", "1", "--", "sleep", "600")
    assert "the limit of 2 per user" in ana("run", "-d", "--", "sleep", "600", code=2).err
    shown = ana("quota").out
    assert all(text in shown for text in ("2 of 2", "1 of 1", "1, may borrow", "0.0 of 9 this month")), shown
    eventually(lambda: "may run 1 jobs at the same time" in ana("explain", "3").out, 60)
    assert "this needs the role admin" in ana("audit", code=2).err
    assert "POST /v1/jobs" in alone("audit", "--user", "ana").out
