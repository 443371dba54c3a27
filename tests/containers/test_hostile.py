"""Strings that want to be something else: refused with a sentence, or intact inside; nothing of them is executed."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from containers.images import busybox, python
from containers.jobs import ended, log_of, serving

pytestmark = pytest.mark.containers

PIECES = [
    "$(touch CANARY)",
    "`touch CANARY`",
    "; touch CANARY;",
    "| touch CANARY",
    "&& touch CANARY",
    "'",
    '"',
    "\\",
    "#",
    "*",
]
PIECES += [
    "${HOME}",
    "%s",
    "--privileged",
    "-v/:/host",
    "=",
    " ",
    "\t",
    "é",
    "日本",
    "\u202e",
    "~",
    "!",
    "<",
    ">",
    "\x1b[31m",
]
SHOW = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"


def strings(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(PIECES, k=rng.randint(1, 6))) for _ in range(count)]


def test_values_and_arguments_arrive_as_they_are(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    values = [text.replace("CANARY", str(canary)) for text in strings(300, 1)]
    words = [text.replace("CANARY", str(canary)) for text in strings(100, 2)]
    env = {f"HOSTILE_{number}": value for number, value in enumerate(values)}
    with serving(tmp_path / "home") as served:
        (job,) = served.submit(command=["python", "-c", SHOW, *words], image=python(), gpus=0, env=env)
        assert ended(served, job)["state"] == "completed"
        found, arguments = json.loads(log_of(served.home, job))
        assert {name: found.get(name) for name in env} == env
        assert arguments == words
        assert "--env=" not in str(list((served.home / "runs" / f"{job}.1" / "0").iterdir()))
    assert not canary.exists()


def test_directories_with_odd_names_are_mounted_or_refused(tmp_path: Path) -> None:
    allowed, canary = tmp_path / "allowed", tmp_path / "canary"
    mounted = refused = 0
    with serving(tmp_path / "home", str(allowed)) as served:
        for text in dict.fromkeys(text.replace("CANARY", "canary").replace("/", "_") for text in strings(40, 3)):
            directory = allowed / f"d{text}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "inside").write_text("here")
            body = {"command": "cat /data/inside", "image": busybox(), "gpus": 0}
            status, answer = served.request(
                "POST", "/v1/jobs", {**body, "mounts": [{"source": str(directory), "target": "/data"}]}
            )
            if status >= 400:
                refused += 1
                assert "mount source" in str(answer), answer
                continue
            (job,) = [int(made["id"]) for made in answer["jobs"]]
            told = ended(served, job)
            if told["state"] == "failed":
                refused += 1
                assert "a mount is refused" in told["message"], told
            else:
                mounted += 1
                assert log_of(served.home, job) == "here"
    assert mounted > 5
    assert refused > 5
    assert not canary.exists()
    assert not (tmp_path / "home" / "canary").exists()


@pytest.mark.parametrize("kind", ["link", "link-in-between", "device", "pipe", "missing", "outside"])
def test_what_leads_outside_of_the_allowed_or_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret"
    (secret / "deep").mkdir(parents=True)
    allowed.mkdir()
    (allowed / "link").symlink_to(secret)
    (allowed / "device").symlink_to("/dev/null")
    os.mkfifo(allowed / "pipe")
    sources = {
        "link": allowed / "link",
        "link-in-between": allowed / "link" / "deep",
        "device": allowed / "device",
        "pipe": allowed / "pipe",
        "missing": allowed / "nothing",
        "outside": secret,
    }
    with serving(tmp_path / "home", str(allowed)) as served:
        (job,) = served.submit(command="ls /data", image=busybox(), gpus=0, mounts=[f"{sources[kind]}:/data"])
        told = ended(served, job)
        assert told["state"] == "failed"
        assert "a mount is refused" in told["message"]
