"""Swell: elastic scheduling of deep-learning training.

This file stays almost empty: the command line and the in-job library both import it, and must start fast. Training code
finds its calls here (`swell.training()`, …); they are loaded when first used. A copy of this file ships into jobs.
"""

TYPE_CHECKING = False  # what type checkers take for true; importing `typing` would cost more than all of this file
if TYPE_CHECKING:
    from swell.sdk import end_epoch, log, measure, should_stop, start_epoch, training

__version__ = "0.1.0"

__all__ = ["__version__", "end_epoch", "log", "measure", "should_stop", "start_epoch", "training"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'swell' has no attribute {name!r}")
    from swell import sdk

    found: object = getattr(sdk, name)
    return found
