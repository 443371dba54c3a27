"""Tokens as they are made: how long they last, and what of them is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from swell.core.accounts import Role
from swell.core.events import Event
from swell.core.lifecycle import replay
from swell.core.state import State
from swell.daemon.accounts import Accounts, digest_of

NOW_S = 1000.0


class Still:
    """A clock that stands still."""

    def now_s(self) -> float:
        return NOW_S

    def monotonic_s(self) -> float:
        return 0.0


def issued(lasts_s: float, until_s: float) -> tuple[State, str, str]:
    """The state after it, the token's id and its text."""
    state = State()

    async def commit(events: Sequence[Event]) -> None:
        replay(events, state)

    async def scene() -> tuple[str, str]:
        accounts = Accounts(lambda: state, commit, Still())
        await accounts.set_user("ana", Role.SUBMITTER, None, by="")
        return await accounts.issue_token("ana", lasts_s=lasts_s, until_s=until_s)

    return state, *asyncio.run(scene())


@pytest.mark.parametrize(
    ("lasts_s", "until_s", "expires_s"),
    [(0.0, 0.0, 0.0), (50.0, 0.0, 1050.0), (0.0, 1200.0, 1200.0), (50.0, 1200.0, 1050.0), (500.0, 1200.0, 1200.0)],
)
def test_a_token_lasts_as_long_as_it_was_asked_for_and_no_longer_than_it_may(
    lasts_s: float, until_s: float, expires_s: float
) -> None:
    state, token, _ = issued(lasts_s, until_s)
    assert state.tokens[token].expires_s == expires_s, "0: it never ends"


def test_of_a_tokens_text_only_a_digest_is_kept() -> None:
    state, token, text = issued(0.0, 0.0)
    assert state.tokens[token].digest == digest_of(text)
    assert text not in repr(state)
