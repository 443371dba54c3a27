"""When a standby may take a daemon for gone: judged by its own clock, and never from a time without a database."""

from swell.store.succession import Patience, Sign


def sign(since: str) -> Sign:
    return Sign(epoch=3, since=since, holder="the daemon at a")


def test_a_daemon_that_gives_signs_is_never_taken_for_gone() -> None:
    now = [0.0]
    patience = Patience(lambda: now[0], patience_s=5.0)
    for second in range(100):
        now[0] = float(second)
        assert not patience.is_over(sign(f"at {second // 4}"))


def test_silence_is_over_after_the_patience_counted_from_the_last_change() -> None:
    now = [0.0]
    patience = Patience(lambda: now[0], patience_s=5.0)
    assert not patience.is_over(sign("a"))
    now[0] = 3.0
    assert not patience.is_over(sign("b"))
    now[0] = 7.9
    assert not patience.is_over(sign("b"))
    now[0] = 8.0
    assert patience.is_over(sign("b"))


def test_an_outage_of_the_database_proves_nothing_about_the_daemon() -> None:
    now = [0.0]
    patience = Patience(lambda: now[0], patience_s=5.0)
    assert not patience.is_over(sign("a"))
    now[0] = 60.0
    patience.begin_anew()  # nobody could write in this minute
    assert not patience.is_over(sign("a"))
