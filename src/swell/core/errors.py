"""The words Swell uses when it says no.

`Infeasible` means never (refuse now, with the reason); `Insufficient` means later (wait, with the reason).
The others are answers to a person's command; each message says what happened and what to do next.
"""


class SwellError(Exception):
    """Root of everything Swell raises on purpose. The message is written for a person."""


class Infeasible(SwellError):
    """No node, now or as configured, could ever hold this job."""


class Insufficient(SwellError):
    """It would fit, but not now."""


class Busy(Insufficient):
    """Not now: too much is asked for at once, or what is asked for could not be worked out. Ask again after
    `retry_after_s`."""

    retry_after_s = 5


class InvalidTransition(SwellError):
    """An event that the transition table does not allow in the job's state."""


class NotFound(SwellError):
    """The named job, run, node or policy does not exist."""


class Conflict(SwellError):
    """The command does not apply in the current state (for example: pausing a job that has ended)."""


class StoreError(SwellError):
    """The store could not keep or give back what it was asked for; what was being written is not there."""


class StoreFull(StoreError):
    """No space left where the database is. Nothing is lost; it goes on once there is space."""


class StoreBusy(StoreError):
    """Another process writes to this database; there is one writer."""


class StoreFenced(StoreError):
    """Another process has taken this database over since we opened it; we write nothing more."""


class StoreDamaged(StoreError):
    """The database cannot be read. Nothing was overwritten."""


class StoreTooNew(StoreError):
    """The database was written by a later version of Swell. It was not touched."""
