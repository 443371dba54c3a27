"""How fast one user may send requests."""

from swell.api.rates import BURST_S, MAX_USERS, Rates


def test_a_burst_is_let_through_then_the_sustained_rate() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    allowed = int(2 * BURST_S)
    assert [rates.wait_s("ana", 2.0) for _ in range(allowed)] == [0] * allowed
    assert rates.wait_s("ana", 2.0) == 1
    now[0] = 0.5
    assert [rates.wait_s("ana", 2.0), rates.wait_s("ana", 2.0)] == [0, 1]


def test_one_user_never_uses_up_what_another_may_send() -> None:
    rates = Rates(lambda: 0.0)
    while not rates.wait_s("ana", 1.0):
        pass
    assert rates.wait_s("bo", 1.0) == 0


def test_a_slow_rate_says_how_long_to_wait() -> None:
    rates = Rates(lambda: 0.0)
    assert rates.wait_s("ana", 0.01) == 0
    assert rates.wait_s("ana", 0.01) == 100


def test_memory_is_bounded() -> None:
    rates = Rates(lambda: 0.0)
    for number in range(MAX_USERS + 10):
        rates.wait_s(f"user-{number}", 1.0)
    assert len(rates._buckets) == MAX_USERS
