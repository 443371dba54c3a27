"""Notices reach a real receiver: signed, again after an outage of it, and from where they were after a restart."""

import asyncio
import hashlib
import hmac
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness import daemon, eventually
from swell.core.notices import Hook, Notice, NoticeKind
from swell.daemon.hooks import Hooks, send
from swell.plan.idle import Idle
from swell.ports import Stored
from unit.plan.test_idle import running

SECRET = "s" * 40


class Receiver(ThreadingHTTPServer):
    """Takes notices; refuses the first `refusals`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[tuple[dict[str, Any], str, bytes]] = []
        self.refusals = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/notices"

    def texts(self) -> list[str]:
        return [body["text"] for body, _, _ in self.taken]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.refusals:
            self.server.refusals -= 1
            self.send_response(503)
        else:
            self.server.taken.append((json.loads(body), self.headers.get("Swell-Signature", ""), body))
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.shutdown()
    found.server_close()


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "swell", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def home_with(tmp_path: Path, **hook: object) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(json.dumps({"hooks": {"team": hook}}))
    return home


def test_notices_arrive_signed_in_order_and_again_after_a_refusal(tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "secret").write_text(SECRET)
    receiver.refusals = 1
    with daemon(home_with(tmp_path, url=receiver.url, secret_file=str(tmp_path / "secret"))) as served:
        (bad,) = served.submit(name="bad", command="echo no data >&2; exit 3", user="ana")
        eventually(lambda: receiver.taken, 60, what="the notice is sent again and taken")
        (good,) = served.submit(name="good", command="true", user="ana")
        eventually(lambda: len(receiver.taken) == 2, 60, what="both are told")
        # The receiver has a notice a moment before the daemon has its answer.
        eventually(lambda: served.get("/v1/hooks")["hooks"][0]["sent"] == 2, 60, what="both are known to be taken")
        assert served.get("/v1/hooks")["hooks"][0]["trouble"] == ""
        assert served.post("/v1/hooks/team/test")["trouble"] == ""
    assert [(body["kind"], body["job"]) for body, _, _ in receiver.taken][:2] == [("failed", bad), ("ended", good)]
    for _, signature, body in receiver.taken:
        at, _, given = signature.removeprefix("t=").partition(",v1=")
        assert hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest() == given


def test_what_happened_while_nobody_took_notices_is_told_after_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    with daemon(home_with(tmp_path, url=receiver.url, style="slack", kinds=["ended"])) as served:
        served.submit(name="first", command="true")
        eventually(lambda: receiver.taken, 60, what="the first is told")
        receiver.refusals = 1_000
        served.submit(name="second", command="true")
        eventually(lambda: receiver.refusals < 1_000, 60, what="the second is refused")
        served.kill()
        receiver.refusals = 0
        served.start()
        eventually(lambda: len(receiver.taken) == 2, 60, what="the second is told by the next daemon")
    assert receiver.texts()[0].startswith("job 1 (first")
    assert receiver.texts()[1].startswith("job 2 (second")
    assert set(receiver.taken[0][0]) == {"text"}


def test_a_notice_is_signed_with_the_time_at_which_it_is_sent(tmp_path: Path, receiver: Receiver) -> None:
    """Receivers refuse old signatures, and a notice may be hours old when it is sent again."""
    (tmp_path / "secret").write_text(SECRET)
    hook = Hook(url=receiver.url, secret_file=str(tmp_path / "secret"))
    notice = Notice(kind=NoticeKind.ENDED, text="job 1 completed", at_s=1000.0)
    send(hook, notice, seq=7, now_s=9000.0)
    ((body, signature, _),) = receiver.taken
    assert signature.startswith("t=9000,")
    assert body["at_s"] == 1000.0


def _told(receiver: Receiver, notices: int) -> bool:
    return len(receiver.taken) == notices


def test_notices_are_sent_again_from_an_event_on(tmp_path: Path, receiver: Receiver) -> None:
    """For a receiver that lost what it had taken: each notice carries the number of its event."""
    with daemon(home_with(tmp_path, url=receiver.url, kinds=["ended"])) as served:
        for number, name in enumerate(("first", "second", "third"), start=1):
            served.submit(name=name, command="true")
            eventually(partial(_told, receiver, number), 60, what=f"{name} is told")
        before = list(receiver.taken)
        answer = served.post("/v1/hooks/team/replay", {"after": before[0][0]["seq"]})
        assert (answer["sent"], answer["trouble"]) == (2, "")
        assert [body for body, _, _ in receiver.taken[3:]] == [body for body, _, _ in before[1:]]
        receiver.refusals = 1
        answer = served.post("/v1/hooks/team/replay", {"after": 0})
        assert answer["sent"] == 0
        assert "503" in answer["trouble"]
        assert served.request("POST", "/v1/hooks/nobody/replay", {"after": 0})[0] == 404
        done = cli("hooks", "--home", str(served.home), "--replay", "team", "--after", str(before[1][0]["seq"]))
        assert done.returncode == 0, done.stderr
        assert "team took 1 notice again" in done.stdout
        assert receiver.texts()[-1].startswith("job 3 (third")


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ({"url": "ftp://x"}, "needs a url"),
        ({"url": "smtp://localhost/?to=a@b"}, "e-mail needs from and to"),
        ({"url": "https://x", "kinds": ["fail"]}, "no notices of the kind 'fail'"),
        ({"url": "https://x", "style": "teams"}, "json or slack"),
    ],
)
def test_a_hook_that_cannot_work_is_refused_at_the_start(tmp_path: Path, hook: dict[str, Any], said: str) -> None:
    from swell.config import ConfigError, load_config

    home = home_with(tmp_path, **hook)
    with pytest.raises(ConfigError, match=said):
        load_config(home)


def test_idle_gpus_are_told_once_until_the_job_is_busy_again(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swell.daemon.hooks.WATCH_EVERY_S", 0.01)
    state, idle = running(0, name="train"), {1: Idle(job=1, gpus=1, held=1, since_s=0.0)}
    looks = 0

    def seen() -> dict[int, Idle]:
        """Idle, busy, and idle again, for some looks each."""
        nonlocal looks
        looks += 1
        return {} if 5 < looks < 10 else idle

    async def nothing_happens(_: int) -> AsyncIterator[Stored]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]

    async def watch() -> None:
        hook = Hook(url=receiver.url, kinds=("idle",))
        hooks = Hooks(
            {"team": hook},
            state=lambda: state,
            follow=nothing_happens,
            now_s=lambda: 3600.0,
            starvation_s=0.0,
            idle=seen,
            kept=tmp_path / "hooks.json",
        )
        task = asyncio.create_task(hooks.run())
        async with asyncio.timeout(60):
            while looks < 20:
                await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(watch())
    words = "its GPU has been idle for 60 min; see `swell show 1` and its log"
    told = f"job 1 (train) holds GPUs that it does not use: {words}"
    assert receiver.texts() == [told, told]
