"""Logs of scripts without the library: what their lines say, and when an epoch counts as done."""

from __future__ import annotations

import re
import time

import pytest

from swell.core.progress import EpochsDone, Seen, Track, finish, follow, harmless, read_line


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("Epoch 3/10", Seen(epoch=3, epochs=10)),
        (
            "1875/1875 - 2s - loss: 0.2210 - accuracy: 0.9345 - val_loss: 0.12",
            Seen(metrics={"loss": 0.221, "accuracy": 0.9345, "val_loss": 0.12}),
        ),
        ("Train Epoch: 4 [640/60000 (1%)]\tLoss: 2.300039", Seen(epoch=4, step=640, metrics={"loss": 2.300039})),
        ("Epoch: [2][  10/5005]\tTime  0.1\tLoss 6.9e+00 (7.0e+00)", Seen(epoch=2, step=10, metrics={"loss": 6.9})),
        ("Epoch 1:  50%|#####     | 5/10 [00:01<00:01, loss=0.25]", Seen(epoch=1, step=5, metrics={"loss": 0.25})),
        ("{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': 1.02}", Seen(epoch=1, metrics={"loss": 0.5})),
        (
            "INFO Epoch[3] Batch [20]\tSpeed: 1234.5 samples/sec\taccuracy=0.91",
            Seen(epoch=3, step=20, samples_per_s=1234.5, metrics={"accuracy": 0.91}),
        ),
        ("Epoch[3] Validation-accuracy=0.875", Seen(epoch=3, metrics={"validation_accuracy": 0.875})),
        ("epoch=7 train loss=1.5e-3", Seen(epoch=7, metrics={"train_loss": 0.0015})),
        ("downloading data", None),
        ("epochal losses were feared", None),
    ],
)
def test_usual_forms_are_understood(line: str, seen: Seen | None) -> None:
    assert read_line(line) == seen


def test_a_jobs_own_pattern_comes_first() -> None:
    own = [re.compile(r"round (?P<epoch>\d+) of (?P<epochs>\d+): err (?P<error>\S+)")]
    assert read_line("round 2 of 9: err 0.25", own) == Seen(epoch=2, epochs=9, metrics={"error": 0.25})
    assert read_line("round 2 of 9: err nan", own) == Seen(epoch=2, epochs=9)


def story(lines: list[tuple[float, str]], before: int = 0) -> tuple[Track, list[EpochsDone]]:
    track, done = Track(), []
    for at_s, line in lines:
        seen = read_line(line)
        if seen is not None:
            track, ended = follow(track, seen, at_s, before)
            done += [ended] if ended else []
    return track, done


def test_an_epoch_is_done_when_the_next_begins_and_the_last_when_the_script_ends_well() -> None:
    track, done = story([(0, "Epoch 1/3"), (9, "loss: 0.5"), (10, "Epoch 2/3"), (30, "Epoch 3/3"), (39, "loss: 0.1")])
    assert [(end.epoch, end.epoch_s, dict(end.metrics)) for end in done] == [(1, 10.0, {"loss": 0.5}), (2, 20.0, {})]
    last = finish(track, 40)
    assert last is not None
    assert (last.epoch, last.epoch_s, dict(last.metrics)) == (3, 10.0, {"loss": 0.1})


def test_a_resumed_script_may_count_on_or_from_the_start() -> None:
    for first in (0, 1, 5):
        _, done = story([(0, f"Epoch {first}"), (1, f"Epoch {first + 1}")], before=5)
        assert [end.epoch for end in done] == [6]


def test_lines_that_go_back_change_nothing() -> None:
    _, done = story([(0, "Epoch 3"), (1, "Epoch 2"), (2, "Epoch 3"), (4, "Epoch 5")])
    assert [(end.epoch, end.count, end.epoch_s) for end in done] == [(2, 2, 2.0)]


def test_a_long_line_costs_little() -> None:
    assert read_line("x" * 10_000_000 + "Epoch 3/10") is None


@pytest.mark.parametrize(
    ("pattern", "safe"),
    [
        (r"round (?P<epoch>\d+) of (?P<epochs>\d+), loss (?P<loss>\S+)", True),
        (r".*loss (?P<loss>[0-9.]+) .* epoch (?P<epoch>\d+)", True),
        (r"(?P<loss>(a+)+)$", False),
        (r"((?:\d+,)*)*x", False),
        (r".*.*.*(?P<loss>x)", False),
        (r"(?:a|b|ab)*c(?P<loss>\S+) \S+", False),
        (r"(unclosed", False),
    ],
)
def test_patterns_that_could_take_for_ever_are_known(pattern: str, safe: bool) -> None:
    assert harmless(pattern) is safe


def test_the_worst_harmless_pattern_is_quick() -> None:
    pattern = re.compile(r".*.*x(?P<loss>\d+)")
    assert harmless(pattern.pattern)
    began_s = time.process_time()
    assert read_line("a" * 5000, [pattern]) is None
    assert time.process_time() - began_s < 1.0
