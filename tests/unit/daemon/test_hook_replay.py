"""Notices that are sent again from an event on: those that a hook wants, each once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swell.core import events as ev
from swell.core.events import Event
from swell.core.lifecycle import replay
from swell.core.notices import Hook, Notice
from swell.core.resources import Contact, Node, NodeCondition
from swell.daemon import hooks as module
from swell.daemon.hooks import Hooks
from swell.ports import Stored

EVENTS: tuple[Event, ...] = (
    ev.NodeObserved(node=Node(name="n1"), at_s=0.0),
    ev.NodeConditionChanged(node="n1", condition=NodeCondition.QUARANTINED, why="a GPU is dirty", at_s=1.0),
    ev.PolicySet(name="fifo", placer="spread", at_s=2.0),
    ev.NodeContactChanged(node="n1", contact=Contact.AWAY, why="n1 does not answer", at_s=3.0),
)
NOTICES = {2: "n1 is set aside: a GPU is dirty", 4: "n1 does not answer"}


def sent_again(hook: Hook, after_seq: int, kept: Path) -> tuple[int, str]:
    async def follow(seq: int) -> AsyncIterator[Stored]:
        for number, event in enumerate(EVENTS, start=1):
            if number > seq:
                yield Stored(seq=number, event=event)
        raise AssertionError("it would wait for what has not happened yet")

    state = replay(EVENTS)
    hooks = Hooks(
        {"team": hook},
        state=lambda: state,
        follow=follow,
        now_s=lambda: 9.0,
        starvation_s=1.0,
        idle=dict,
        kept=kept / "hooks.json",
    )
    return asyncio.run(hooks.replay("team", after_seq))


@pytest.mark.parametrize(
    ("kinds", "after_seq", "told"), [("machine", 0, [2, 4]), ("machine", 2, [4]), ("ended", 0, [])]
)
def test_notices_of_the_wanted_kinds_are_sent_again_each_once(
    kinds: str, after_seq: int, told: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, str]] = []
    monkeypatch.setattr(module, "send", lambda _hook, notice, seq, _now_s: sent.append((seq, notice.text)))
    assert sent_again(Hook(url="http://x", kinds=(kinds,)), after_seq, tmp_path) == (len(told), "")
    assert sent == [(seq, NOTICES[seq]) for seq in told]


def test_the_first_that_is_not_taken_ends_it_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(_hook: Hook, _notice: Notice, seq: int, _now_s: float) -> None:
        if seq == 4:
            raise OSError("it answered 503")

    monkeypatch.setattr(module, "send", send)
    assert sent_again(Hook(url="http://x"), 0, tmp_path) == (1, "event 4: OSError: it answered 503")
