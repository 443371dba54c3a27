"""The token bucket behind limits of requests and of wrong tokens."""

from __future__ import annotations

from swell.api.bucket import Bucket


def test_it_fills_steadily_and_never_beyond_its_limit() -> None:
    bucket = Bucket(left=0.0, seen_s=100.0)
    bucket.refill(102.0, per_s=0.5, most=3.0)
    assert (bucket.left, bucket.seen_s) == (1.0, 102.0)
    bucket.refill(1000.0, per_s=0.5, most=3.0)
    assert bucket.left == 3.0


def test_the_wait_is_in_whole_seconds_and_zero_only_if_there_is_a_token() -> None:
    assert Bucket(left=1.0, seen_s=0.0).wait_s(0.1) == 0
    assert Bucket(left=0.999, seen_s=0.0).wait_s(100.0) == 1
    assert Bucket(left=0.5, seen_s=0.0).wait_s(0.1) == 5
