"""Logs of scripts without the library: what their lines say, and when an epoch counts as done."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from swell.core.progress import Seen, groups_of, read_line, seen_of
from swell.core.progress_track import Report, Track, finish, follow, marked, report

LOGS = Path(__file__).resolve().parents[2] / "logs"
"""Of real runs: Hugging Face Trainer 5.22, Lightning 2.6.6, Keras 3, tqdm 4.70, Rich 15."""


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("Epoch 3/10", Seen(epoch=3, epochs=10)),
        (
            "1875/1875 - 2s - loss: 0.2210 - accuracy: 0.9345 - val_loss: 0.12",
            Seen(metrics={"loss": 0.221, "accuracy": 0.9345, "val_loss": 0.12}),
        ),
        (
            "Train Epoch: 4 [640/60000 (1%)]\tLoss: 2.300039",
            Seen(epoch=4, step=640, steps=60000, metrics={"loss": 2.300039}),
        ),
        (
            "Epoch: [2][  10/5005]\tTime  0.1\tLoss 6.9e+00 (7.0e+00)",
            Seen(epoch=2, step=10, steps=5005, metrics={"loss": 6.9}),
        ),
        (
            "Epoch 1:  50%|#####     | 5/10 [00:01<00:01, loss=0.25]",
            Seen(epoch=1, step=5, steps=10, metrics={"loss": 0.25}),
        ),
        ("{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': 1.02}", Seen(epoch=1, metrics={"loss": 0.5})),
        (
            "INFO Epoch[3] Batch [20]\tSpeed: 1234.5 samples/sec\taccuracy=0.91",
            Seen(epoch=3, step=20, samples_per_s=1234.5, metrics={"accuracy": 0.91}),
        ),
        ("Epoch[3] Validation-accuracy=0.875", Seen(epoch=3, metrics={"validation_accuracy": 0.875})),
        ("epoch=7 train loss=1.5e-3", Seen(epoch=7, metrics={"train_loss": 0.0015})),
        ("Epoch 45/300", Seen(epoch=45, epochs=300)),
        ("iter 300: loss 2.1250, time 20.11ms", Seen(step=300, metrics={"loss": 2.125})),
        ("step 250/6000: train loss 2.5", Seen(step=250, steps=6000, metrics={"train_loss": 2.5})),
        (" 17%|#7        | 6/36 [00:00<00:00, 65.28it/s]", Seen(step=6, steps=36)),
        ("[transformers]   Num update steps per epoch = 375", None),
        ("  Num Epochs = 3", Seen(epochs=3)),
        ("  Total optimization steps = 36", Seen(steps=36)),
        ("steps_per_epoch: 375", None),
        ("best epoch: 7", None),
        ("Accuracy: 500/500", Seen(metrics={"accuracy": 1.0})),
        ("Average loss: 0.03, Accuracy: 9903/10000 (99%)", Seen(metrics={"loss": 0.03, "accuracy": 0.9903})),
        ("\x1b[1mEpoch 2/3\x1b[0m", Seen(epoch=2, epochs=3)),
        ('{"step": 1200, "loss": 2.5}', Seen(step=1200, metrics={"loss": 2.5})),
        ("{'epoch': 3, 'global_step': 1200}", Seen(epoch=3, step=1200)),
        ('{"epoch": 3, "loss": 2.5}', Seen(epoch=3, metrics={"loss": 2.5})),
        ("step 1,200/60,000 | loss 2.5", Seen(step=1200, steps=60000, metrics={"loss": 2.5})),
        ("step 12, loss 2.5", Seen(step=12, metrics={"loss": 2.5})),
        ("eval step 10: loss 2.5", Seen(metrics={"loss": 2.5})),
        ("Validation step: 10", None),
        ("test iter 3, warmup step 4", None),
        ("downloading data", None),
        ("epochal losses were feared", None),
    ],
)
def test_usual_forms_are_understood(line: str, seen: Seen | None) -> None:
    assert read_line(line) == seen


def test_numbers_are_read_up_to_fifteen_digits_and_longer_ones_left_alone() -> None:
    assert read_line(f"Epoch {10**14}") == Seen(epoch=10**14)
    assert read_line(f"Epoch {10**15}") is None


def test_what_a_jobs_own_pattern_finds() -> None:
    own = [re.compile(r"round (?P<epoch>\S+) of (?P<epochs>\d+): err (?P<error>\S+)"), re.compile("round")]
    found = [groups_of(f"round {text}", own) for text in ("2 of 9: err 0.25", "2 of 9: err nan", "1e300 of 9: err 1")]
    assert [seen_of(groups) for groups in found if groups is not None] == [
        Seen(epoch=2, epochs=9, metrics={"error": 0.25}),
        Seen(epoch=2, epochs=9),
        Seen(epochs=9, metrics={"error": 1.0}),  # no database takes such a number
    ]
    assert groups_of("something else", own) is None


def story(lines: Sequence[tuple[float, str]], before: int = 0, **known: Any) -> tuple[Track, list[Report]]:
    """Every line read, and a report after each that brought news."""
    track, told = Track(before=before, **known), []
    for at_s, line in lines:
        seen = read_line(line)
        track = follow(track, seen, at_s) if seen is not None else track
        if (found := report(track)) is not None:
            told.append(found)
            track = marked(track)
    return track, told


def lines_of(name: str) -> list[tuple[float, str]]:
    text = (LOGS / name).read_text(encoding="utf-8")
    return list(enumerate(text.replace("\r", "\n").split("\n")))


def test_an_epoch_is_done_when_the_next_begins_and_the_last_when_the_script_ends_well() -> None:
    track, done = story([(0, "Epoch 1/3"), (9, "loss: 0.5"), (10, "Epoch 2/3"), (30, "Epoch 3/3"), (39, "loss: 0.1")])
    assert [(end.done, end.unit_s, dict(end.metrics)) for end in done] == [(1, 10.0, {"loss": 0.5}), (2, 20.0, {})]
    last = finish(track, 40)
    assert last is not None
    assert (last.done, last.unit_s, dict(last.metrics)) == (3, 10.0, {"loss": 0.1})


def test_a_resumed_script_may_count_on_or_from_the_start() -> None:
    for first in (0, 1, 5, 6):
        _, done = story([(0, f"Epoch {first}"), (1, f"Epoch {first + 1}")], before=5)
        assert [end.done for end in done] == [6]


def test_numbers_after_a_resume_are_taken_as_they_are() -> None:
    """Stopped after epoch 31 of 60, resumed from the checkpoint of epoch 30: 31 is done when 32 begins."""
    _, done = story([(0, "Epoch 31/60"), (1, "Epoch 32/60"), (2, "Epoch 60/60")], before=31, total=60)
    assert [end.done for end in done][:1] == [31]
    _, done = story([(0, "Epoch 1/29"), (1, "Epoch 2/29")], before=31, total=60)
    assert [(end.done, end.total) for end in done] == [(32, 60)], "this one counts what is left"
    _, done = story([(t, f"iter {3000 + 10 * t}: loss 1.0") for t in range(4)], before=3100, unit="step", total=6000)
    assert [end.done for end in done][-1] == 3030


@pytest.mark.parametrize("start", [3000, 3200, 0])
def test_a_bar_over_the_steps_that_are_left_counts_on(start: int) -> None:
    """`tqdm(range(start, 6000))`: the checkpoint may be older than the last report."""
    left = 6000 - start
    bars = [f"{100 * n // left:3d}%|##  | {n}/{left} [00:10<01:00, 9.95it/s]" for n in range(0, 1001, 100)]
    beside = "100%|####| 40/40 [00:01<00:00]"  # an evaluation
    lines = [*bars[:5], beside, f"step {start + 420}: loss 1.0", *bars[5:]]
    track, done = story(list(enumerate(lines)), before=3200, unit="step", total=6000)
    assert (track.done, track.total) == (start + 1000, 6000)
    assert [end.done for end in done] == sorted({end.done for end in done})


def test_a_bar_over_the_epochs_that_are_left_counts_on() -> None:
    for first in (0, 1):
        lines = [(t, f"Epoch {first + t}/30") for t in range(5)]
        _, done = story(lines, before=31, total=60)
        assert [(end.done, end.total) for end in done] == [(31 + t, 60) for t in range(4)], first


def test_never_more_than_there_is() -> None:
    track, done = story([(t, f"iter {5900 + 50 * t}") for t in range(9)], before=3000, unit="step", total=6000)
    assert max(end.done for end in done) <= 6000
    assert track.done <= 6000


def test_lines_that_go_back_change_nothing() -> None:
    _, done = story([(0, "Epoch 3"), (1, "Epoch 2"), (2, "Epoch 3"), (4, "Epoch 5")])
    assert [(end.done, end.count, end.unit_s) for end in done] == [(2, 2, 2.0)]


@pytest.mark.parametrize("wild", ["epoch 375", "see epoch 9999 of the paper"])
def test_one_wild_number_is_not_believed_and_blocks_nothing(wild: str) -> None:
    plain = [(t, f"epoch {t}") for t in range(1, 9)]
    _, in_the_middle = story([*plain[:3], (3.5, wild), *plain[3:]])
    assert [end.done for end in in_the_middle] == list(range(1, 8))
    track, at_first = story([(0, wild), *plain])
    assert track.number == 8
    assert at_first[-1].done == 7


def test_a_wrong_total_in_the_log_blocks_nothing() -> None:
    """A banner of the first stage, or with max_steps: what the job file says holds again."""
    lines = ["Num Epochs = 1", *(f"{{'loss': '3.1', 'epoch': '{e}.{i}'}}" for e in range(4) for i in range(4))]
    _, done = story(list(enumerate(lines)), total=4, given=4)
    assert [(end.done, end.total) for end in done] == [(1, 1), (2, 4), (3, 4)]
    _, fewer = story(
        [(0, "Epoch 1/2"), (1, "Epoch 2/2"), (2, "Epoch 3/2"), (3, "Epoch 4/2"), (4, "Epoch 5/2")], given=9
    )
    assert max(end.done for end in fewer) <= 2, "a number above its own total is no epoch"


def test_a_script_that_prints_now_and_then() -> None:
    _, done = story([(t, f"Epoch {50 * t}/500") for t in range(6)])
    assert (done[-1].done, done[-1].total) == (250, 500)
    assert sum(end.count for end in done) == 250


def test_steps_have_the_time_between_their_lines() -> None:
    track, done = story([(2.0 * t, f"iter {100 * t}: loss {1 / (t + 1):.4f}") for t in range(4)], unit="step")
    assert done[-1].done == 300
    assert {end.unit_s for end in done} == {0.02}
    assert done[-1].metrics == {"loss": 0.25}
    assert finish(track, 100.0) is None, "no step is made up at the end"


def test_a_long_first_epoch_is_timed_from_within_once() -> None:
    lines = [(float(t), f"Epoch: [0][{10 * t}/5000]  Loss 1.0") for t in range(0, 100, 10)]
    _, done = story(lines)
    assert [(end.done, end.count, end.unit_s) for end in done] == [(0, 0, 500.0)]


@pytest.mark.parametrize(
    ("log", "unit", "total", "done"),
    [
        ("huggingface.txt", "epoch", 3, 3),
        ("huggingface.txt", "step", 36, 36),
        ("keras.txt", "epoch", 5, 5),
        ("lightning-tqdm.txt", "epoch", 0, 3),
        ("lightning-rich.txt", "epoch", 2, 2),
        ("tqdm-epochs.txt", "epoch", 2, 2),
        ("tqdm-steps.txt", "step", 40, 40),
        ("rich.txt", "epoch", 3, 3),
        ("nanogpt.txt", "step", 0, 200),
    ],
)
def test_logs_of_real_runs(log: str, unit: str, total: int, done: int) -> None:
    """All from the packages themselves but nanogpt.txt, which is written in the shape of its lines."""
    track, told = story(lines_of(log), unit=unit)
    last = finish(track, 1e6)
    reports = [*told, last] if last else told
    assert reports[-1].done == done
    assert track.total == total
    assert all(0 < end.count <= done and end.done <= done for end in reports)


def test_a_long_line_costs_little() -> None:
    assert read_line("x" * 10_000_000 + "Epoch 3/10") is None


@pytest.mark.parametrize(
    "line",
    [
        "speed: " + "1" * 1990,
        "loss" + " " * 1990,
        "acc " + "1" * 1990,
        "9" * 2000,
        "{'epoch': " + "9" * 1990,
        "{'epoch': 1" * 180,
    ],
)
def test_no_line_is_made_so_that_reading_it_takes_long(line: str) -> None:
    """A log comes in pieces of 64 KiB: 33 such lines."""
    began_s = time.process_time()
    for _ in range(10):
        read_line(line)
    assert time.process_time() - began_s < 0.5  # 2 s before
