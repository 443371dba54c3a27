"""What training code imports: `import swell`. Standard library only, nothing else of the package.

    import swell

    with swell.training() as run:
        state = run.load(default=new_state())
        for epoch in run.epochs():
            for batch in run.steps(loader):
                loss = train(state, batch)
            run.log(loss=loss)
            run.save(state)

or, where a framework owns the loop, `swell.start_epoch()`, `swell.measure()`, `swell.end_epoch()`.
"""

from __future__ import annotations

from typing import Any

from swell.sdk.leaving import EXIT_STOPPED
from swell.sdk.session import Training
from swell.sdk.settings import read_settings
from swell.sdk.steps import StepTraining

__all__ = [
    "EXIT_STOPPED",
    "StepTraining",
    "Training",
    "end_epoch",
    "log",
    "measure",
    "should_stop",
    "start_epoch",
    "training",
]

_current: Training | None = None


UNITS = ("step", "token", "sample")


def training(epochs: int = 0, **options: Any) -> Any:
    """A training run: `with swell.training() as run:`. It counts `epochs`, or one of `steps`, `tokens`, `samples`
    (then see `StepTraining`: `run.loop()`, `save_every`). Other options: `checkpoint_dir`, `keep`.

    Returns a `Training` or a `StepTraining`; unset, the job file decides which."""
    global _current
    totals = {unit: options.pop(unit + "s") for unit in UNITS if unit + "s" in options}
    if len(totals) + bool(epochs) > 1:
        raise ValueError("a training counts in one unit: give epochs, steps, tokens or samples, not several")
    unit = next(iter(totals), "" if epochs else read_settings().unit)
    if unit in UNITS:
        _current = StepTraining(unit=unit, total=totals.get(unit, 0), **options)
    else:
        _current = Training(epochs=epochs, **options)
    return _current


def current() -> Training:
    """The run of this process, made when first asked for."""
    return _current if _current is not None else training()


def start_epoch() -> int:
    """Call before each epoch; returns its number over all attempts. Leaves the process if the run is to stop here."""
    return current().start_epoch()


def measure(samples: int = 0) -> None:
    """Call after each step."""
    current().measure(samples)


def end_epoch() -> None:
    """Call after each epoch, validation included."""
    current().end_epoch()


def log(**metrics: Any) -> None:
    """Report losses, accuracies and the like."""
    current().log(**metrics)


def should_stop() -> bool:
    """Call after a step, on every rank, to be able to stop within an epoch."""
    return current().should_stop()
