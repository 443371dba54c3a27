"""The exceptions that Swell raises.

`Infeasible` means never (refuse now, with the reason); `Insufficient` means not now (wait, with the reason). The others
answer a person's command; each message says what happened and what to do next.
"""


class SwellError(Exception):
    """Root of everything Swell raises on purpose. The message is written for a person."""


class Infeasible(SwellError):
    """No node, now or as configured, could ever hold this job."""


class Insufficient(SwellError):
    """It would fit, but not now."""


class Busy(Insufficient):
    """Not now: there are too many requests, or the answer could not be computed. Try again after `retry_after_s`."""

    retry_after_s = 5


class InvalidTransition(SwellError):
    """An event that the transition table does not allow in the job's state."""


class NotFound(SwellError):
    """The named job, run, node or policy does not exist."""


class Conflict(SwellError):
    """The command does not apply in the current state (for example: pausing a job that has ended)."""


class StoreError(SwellError):
    """The store could not write or read; the refused write is not in it."""


class StoreFull(StoreError):
    """No space left for the database. Nothing is lost; writing continues once there is space."""


class StoreBusy(StoreError):
    """Another process writes to this database, which allows one writer."""


class StoreFenced(StoreError):
    """Another process has taken this database over since this one opened it; this one writes nothing more."""


class StoreDamaged(StoreError):
    """The database cannot be read. Nothing was overwritten."""


class StoreTooNew(StoreError):
    """The database was written by a later version of Swell. It was not touched."""
