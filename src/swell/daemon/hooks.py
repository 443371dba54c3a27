"""Sends notices to people: by webhooks (signed or Slack-compatible) and e-mail. Each hook continues in the log where it
stopped, so a restart or an outage of the receiver loses no notice and repeats at most one."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import json
import logging
import smtplib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from swell.core.errors import NotFound
from swell.core.ids import JobId
from swell.core.notices import Hook, Notice, NoticeKind, idle, notice_of, starving
from swell.core.state import JobState, State
from swell.home import write_private
from swell.plan.idle import Idle
from swell.ports import Stored

log = logging.getLogger(__name__)

TIMEOUT_S = 15.0
FIRST_RETRY_S, MAX_RETRY_S = 2.0, 300.0
GIVE_UP_S = 24 * 3600.0
"""A notice that could not be delivered for this long is dropped and logged."""
WATCH_EVERY_S = 60.0
SIGNATURE = "Swell-Signature"


@dataclass(slots=True)
class Delivery:
    """The progress of one hook."""

    seq: int = 0  # of the last event that was handled
    sent: int = 0
    dropped: int = 0
    trouble: str = ""  # why the receiver did not accept the last notice; empty: it did
    starving: dict[int, float] = field(default_factory=dict)  # jobs already reported, with the start of their wait
    idle: frozenset[JobId] = frozenset()  # jobs with idle GPUs already reported


class Hooks:
    """Two tasks per hook, so that a receiver that does not answer delays only its own hook. `follow` reads the log from
    an event on."""

    def __init__(
        self,
        hooks: Mapping[str, Hook],
        *,
        state: Callable[[], State],
        follow: Callable[[int], AsyncIterator[Stored]],
        now_s: Callable[[], float],
        starvation_s: float,
        idle: Callable[[], Mapping[JobId, Idle]],
        kept: Path,
    ) -> None:
        self._hooks = hooks
        self._state = state
        self._follow = follow
        self._now_s = now_s
        self._starvation_s = starvation_s
        self._idle = idle
        self._kept = kept
        self.deliveries = {name: Delivery(seq=_kept_seq(kept, name, state().seq)) for name in hooks}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, hook in self._hooks.items():
                group.create_task(self._serve(name, hook))
                group.create_task(self._watch(name, hook))

    async def _serve(self, name: str, hook: Hook) -> None:
        delivery = self.deliveries[name]
        while True:
            try:
                async for stored in self._follow(delivery.seq):
                    notice = notice_of(self._state(), stored.event)
                    if notice is not None and notice.kind in hook.kinds:
                        await self._deliver(name, hook, notice, stored.seq)
                        delivery.seq = stored.seq
                        await asyncio.to_thread(self._keep)
                    delivery.seq = stored.seq
            except NotFound as error:  # the events were compacted while the hook was behind
                log.warning("hook %s: %s; it goes on with what happens now", name, error)
                delivery.seq = self._state().seq

    async def _watch(self, name: str, hook: Hook) -> None:
        """Notices that follow from time or measurements, not from an event: starving jobs and idle GPUs."""
        delivery = self.deliveries[name]
        while True:
            starved = self._starving(delivery) if NoticeKind.STARVING in hook.kinds else []
            idle = self._idling(delivery) if NoticeKind.IDLE in hook.kinds else []
            for notice in (*starved, *idle):
                await self._deliver(name, hook, notice, self._state().seq)
            await asyncio.sleep(WATCH_EVERY_S)

    def _idling(self, delivery: Delivery) -> list[Notice]:
        """A notice for each job that began to hold GPUs idle since the last call."""
        state, now_s, found = self._state(), self._now_s(), self._idle()
        news = [job for job in found if job not in delivery.idle]
        delivery.idle = frozenset(found)
        return [idle(state.jobs[job], found[job].words(now_s), now_s) for job in news]

    def _starving(self, delivery: Delivery) -> list[Notice]:
        """A notice for each starving job, once per wait."""
        state, now_s = self._state(), self._now_s()
        waiting = [job for job in map(state.jobs.__getitem__, state.active) if job.state is JobState.QUEUED]
        found = []
        for job in waiting:
            waited_s = now_s - job.queued_since_s
            if waited_s > self._starvation_s and not job.paused and delivery.starving.get(job.id) != job.queued_since_s:
                delivery.starving[job.id] = job.queued_since_s
                found.append(starving(job, waited_s, now_s))
        return found

    async def _deliver(self, name: str, hook: Hook, notice: Notice, seq: int) -> None:
        """Send it until it is accepted or given up."""
        delivery, wait_s = self.deliveries[name], FIRST_RETRY_S
        loop = asyncio.get_running_loop()
        until_s = loop.time() + GIVE_UP_S
        while True:
            try:
                await asyncio.to_thread(send, hook, notice, seq, self._now_s())
            except Exception as error:  # any failure of the receiver
                delivery.trouble = f"{type(error).__name__}: {error}"[:300]
                log.warning("hook %s did not take a notice (%s); it is sent again", name, delivery.trouble)
            else:
                delivery.trouble, delivery.sent = "", delivery.sent + 1
                return
            if loop.time() > until_s:
                delivery.dropped += 1
                log.error("hook %s: gave up a notice after a day: %s", name, notice.text)
                return
            await asyncio.sleep(wait_s)
            wait_s = min(MAX_RETRY_S, 2 * wait_s)

    async def test(self, name: str, *, by: str) -> str:
        """Send a notice now, once. Returns why it was not accepted; empty: it was."""
        who = f" by {by}" if by else ""
        notice = Notice(kind=NoticeKind.MACHINE, text=f"a test{who}: Swell reaches this hook", at_s=self._now_s())
        try:
            await asyncio.to_thread(send, self._hooks[name], notice, self._state().seq, self._now_s())
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]
        return ""

    async def replay(self, name: str, after_seq: int) -> tuple[int, str]:
        """Send the notices of the events after `after_seq` again, up to now, each once. Returns how many were accepted,
        and why the next one was not (empty: all were). Notices without an event (starving, idle) are not repeated."""
        hook, sent, until_seq = self._hooks[name], 0, self._state().seq
        if after_seq >= until_seq:
            return 0, ""
        async for stored in self._follow(after_seq):
            notice = notice_of(self._state(), stored.event)
            if notice is not None and notice.kind in hook.kinds:
                try:
                    await asyncio.to_thread(send, hook, notice, stored.seq, self._now_s())
                except Exception as error:
                    return sent, f"event {stored.seq}: {type(error).__name__}: {error}"[:300]
                sent += 1
            if stored.seq >= until_seq:
                break
        return sent, ""

    def _keep(self) -> None:
        write_private(self._kept, json.dumps({name: delivery.seq for name, delivery in self.deliveries.items()}))

    def view(self) -> list[dict[str, object]]:
        """The progress of each hook, for people."""
        return [
            {
                "name": name,
                "to": urlsplit(hook.url).hostname or hook.url,
                "kinds": list(hook.kinds),
                "sent": self.deliveries[name].sent,
                "dropped": self.deliveries[name].dropped,
                "trouble": self.deliveries[name].trouble,
                "behind": max(0, self._state().seq - self.deliveries[name].seq),
            }
            for name, hook in sorted(self._hooks.items())
        ]


def _kept_seq(kept: Path, name: str, newest: int) -> int:
    """Sequence number of the last event that a hook handled; a new hook begins at the end of the log."""
    try:
        return min(newest, int(json.loads(kept.read_text(encoding="utf-8"))[name]))
    except (OSError, ValueError, KeyError, TypeError):
        return newest


# -- sending: blocking ------------------------------------------------------------------------------------------------


def send(hook: Hook, notice: Notice, seq: int, now_s: float) -> None:
    """Send one notice. Raises if it was not accepted."""
    if hook.url.startswith("smtp:"):
        _mail(hook, notice)
    else:
        _post(hook, notice, seq, now_s)


def body_of(hook: Hook, notice: Notice, seq: int) -> bytes:
    body: dict[str, Any] = {"text": notice.text} if hook.style == "slack" else {"seq": seq, **asdict(notice)}
    return json.dumps(body).encode()


def signature(secret: str, at_s: int, body: bytes) -> str:
    """HMAC over the time of sending and the body, `t=…,v1=…`. By the time, receivers can refuse replayed requests."""
    found = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={found}"


def _post(hook: Hook, notice: Notice, seq: int, now_s: float) -> None:
    parts = urlsplit(hook.url)
    body = body_of(hook, notice, seq)
    headers = {"Content-Type": "application/json", "User-Agent": "swell"}
    if hook.secret_file:
        secret = Path(hook.secret_file).read_text(encoding="utf-8").strip()
        headers[SIGNATURE] = signature(secret, int(now_s), body)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("POST", parts.path + (f"?{parts.query}" if parts.query else "") or "/", body, headers)
        answer = connection.getresponse()
        answer.read(65536)
        if not 200 <= answer.status < 300:
            raise OSError(f"it answered {answer.status} {answer.reason}")
    finally:
        connection.close()


def _mail(hook: Hook, notice: Notice) -> None:
    parts = urlsplit(hook.url)
    query = parse_qs(parts.query)
    message = EmailMessage()
    message["Subject"] = f"[swell] {notice.text}"[:200].replace("\n", " ").replace("\r", " ")
    message["From"], message["To"] = query["from"][0], ", ".join(query["to"])
    message.set_content(notice.text)
    with smtplib.SMTP(parts.hostname or "localhost", parts.port or 25, timeout=TIMEOUT_S) as server:
        server.ehlo_or_helo_if_needed()  # `has_extn` needs it
        if server.has_extn("starttls"):
            server.starttls(context=ssl.create_default_context())
        server.send_message(message)
