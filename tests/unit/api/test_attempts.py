"""Who guesses is not listened to for a while; nobody else is locked out."""

from __future__ import annotations

from swell.api.attempts import BURST, MAX_PEERS, Attempts


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def guessed(attempts: Attempts, peer: str, count: int) -> list[int]:
    return [attempts.wrong(peer, f"guess {i}") for i in range(count)]


def test_a_guesser_is_locked_out_and_let_in_again() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    assert guessed(attempts, "a", BURST + 2) == [0] * BURST + [1, 1]
    assert attempts.locked_s("a") == 1
    clock.now += 1
    assert attempts.locked_s("a") == 0
    assert attempts.wrong("a", "one more") == 0
    assert attempts.locked_s("a") == 1
    clock.now += BURST
    assert attempts.locked_s("a") == 0
    assert guessed(attempts, "a", BURST) == [0] * BURST


def test_others_are_not() -> None:
    attempts = Attempts(Clock())
    guessed(attempts, "a", 1000)
    assert attempts.locked_s("b") == 0
    assert attempts.wrong("b", "x") == 0


def test_a_client_with_an_old_token_locks_nobody_out() -> None:
    attempts = Attempts(Clock())
    assert [attempts.wrong("a", "old") for _ in range(BURST + 1)][-1] == 1
    assert attempts.locked_s("a") == 0


def test_memory_is_bounded() -> None:
    attempts = Attempts(Clock())
    for number in range(MAX_PEERS + 5):
        attempts.wrong(str(number), "x")
    assert len(attempts._peers) == MAX_PEERS
