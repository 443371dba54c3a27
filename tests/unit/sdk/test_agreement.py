"""The stop agreement by example; tests/property/test_agreement.py holds it against unkind messages."""

from __future__ import annotations

from swell.core.agreement import Agreement, StopPoint


def two_ranks(first: tuple[int, int] = (3, 0), second: tuple[int, int] = (3, 0)) -> Agreement:
    heard = Agreement().hear(rank=0, position=first, world_size=2, epochs=10)
    return heard.hear(rank=1, position=second, world_size=2, epochs=10)


def test_nothing_is_proposed_unasked() -> None:
    assert two_ranks().view() is None


def test_all_promise_then_it_is_decided_and_told_only_when_durable() -> None:
    asked = two_ranks().ask()
    assert asked.view() == StopPoint(at=(4, 0), agreed=False)
    one = asked.hear(rank=0, position=(3, 0), ack=(4, 0), world_size=2)
    assert one.decided is None
    both = one.hear(rank=1, position=(3, 0), ack=(4, 0), world_size=2)
    assert both.decided == (4, 0)
    assert both.view() == StopPoint(at=(4, 0), agreed=False)
    assert both.confirm().view() == StopPoint(at=(4, 0), agreed=True)


def test_a_rank_that_passed_unaware_voids_and_the_next_one_is_further() -> None:
    asked = two_ranks().ask().hear(rank=0, position=(3, 0), ack=(4, 0), world_size=2)
    void = asked.hear(rank=1, position=(4, 0), world_size=2)
    assert void.view() == StopPoint(at=(6, 0), agreed=False)
    late = void.hear(rank=1, position=(3, 0), ack=(4, 0), world_size=2)
    assert late.view() == void.view(), "an ack of what is void is no news"


def test_what_is_decided_never_changes() -> None:
    decided = two_ranks().ask()
    for rank in (0, 1):
        decided = decided.hear(rank=rank, position=(3, 0), ack=(4, 0), world_size=2)
    assert decided.hear(rank=1, position=(5, 0), world_size=2).decided == (4, 0)


def test_a_rank_that_never_speaks_keeps_the_others_from_waiting() -> None:
    assert Agreement().hear(rank=0, position=(3, 0), world_size=2).ask().view() is None


def test_steps_only_when_every_rank_can() -> None:
    one = Agreement().hear(rank=0, position=(3, 7), world_size=2, steps=True)
    both = one.hear(rank=1, position=(3, 8), world_size=2, steps=True).ask()
    assert both.view() == StopPoint(at=(3, 10), agreed=False)
    mixed = one.hear(rank=1, position=(3, 0), world_size=2).ask()
    assert mixed.view() == StopPoint(at=(4, 0), agreed=False)


def test_the_last_epoch_is_spared_for_a_resize_but_not_for_a_preemption() -> None:
    resize = two_ranks((8, 0), (8, 0)).ask(spare=1)
    assert resize.view() is None
    assert resize.ask().view() == StopPoint(at=(9, 0), agreed=False)
    assert two_ranks((9, 0), (9, 0)).ask().view() is None, "the last epoch runs: it ends by itself"


def test_proposals_come_sooner_rather_than_after_the_end() -> None:
    asked = two_ranks((7, 0), (7, 0)).ask().hear(rank=0, position=(8, 0), world_size=2)
    assert asked.view() == StopPoint(at=(9, 0), agreed=False)


def test_after_a_restart_of_the_daemon_old_promises_are_taken_up() -> None:
    fresh = Agreement().ask().hear(rank=0, position=(3, 0), world_size=2)
    again = fresh.hear(rank=1, position=(3, 0), ack=(5, 0), world_size=2)
    assert again.view() == StopPoint(at=(5, 0), agreed=False)
    assert again.hear(rank=0, position=(3, 0), ack=(5, 0), world_size=2).decided == (5, 0)


def test_a_promise_below_the_new_proposal_is_superseded() -> None:
    fresh = two_ranks().ask()
    raised = fresh.hear(rank=1, position=(3, 0), ack=(6, 0), world_size=2)
    assert raised.view() == StopPoint(at=(6, 0), agreed=False)
    assert raised.news_for((4, 0))
    assert not raised.news_for((6, 0))


def test_ranks_that_left_with_a_smaller_world_no_longer_count() -> None:
    three = Agreement()
    for rank in range(3):
        three = three.hear(rank=rank, position=(1, 0), world_size=3)
    one = three.hear(rank=0, position=(2, 0), world_size=1).ask()
    assert one.hear(rank=0, position=(2, 0), ack=(3, 0), world_size=1).decided == (3, 0)
