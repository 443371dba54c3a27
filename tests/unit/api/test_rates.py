"""How fast one user may send requests."""

import pytest

from swell.api.rates import BURST_S, MAX_USERS, AtOnce, Rates
from swell.core.accounts import Caller, Role, Way


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


def caller(way: Way, user: str = "") -> Caller:
    return Caller(user=user, role=Role.ADMIN, way=way)


def test_a_user_may_have_so_many_requests_open_and_the_next_one_when_one_has_ended() -> None:
    at_once, ana = AtOnce(), caller(Way.TOKEN, "ana")
    with at_once.one(ana, 1) as first:
        with at_once.one(ana, 1) as second, at_once.one(caller(Way.TOKEN, "bo"), 1) as other:
            assert (first, second, other) == (True, False, True)
        with at_once.one(ana, 2) as third:
            assert third
    with at_once.one(ana, 1) as later:
        assert later


@pytest.mark.parametrize("who", [None, caller(Way.OWNER), caller(Way.RUN, "ana")])
def test_the_owner_runs_and_who_is_not_known_yet_are_not_counted(who: Caller | None) -> None:
    at_once = AtOnce()
    with at_once.one(who, 0) as open_now:
        assert open_now
        assert not at_once._open
