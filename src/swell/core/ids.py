"""Ids of jobs and runs. A run is one attempt of a job; executors and training code refer to it by its id."""

from __future__ import annotations

from dataclasses import dataclass

JobId = int
JOB_ID = "[1-9][0-9]{0,11}"
"""Regular expression of a job id in file names. Its length is bounded because new ids begin above those found in file
names, and must fit into the store."""


@dataclass(frozen=True, slots=True, order=True)
class RunId:
    """One attempt of a job. Written `7.2`: the second attempt of job 7."""

    job: JobId
    attempt: int

    def __str__(self) -> str:
        return f"{self.job}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> RunId:
        job, dot, attempt = text.partition(".")
        if not (dot and text.isascii() and job.isdecimal() and attempt.isdecimal()):  # ٧.٢ would be 7.2 to int()
            raise ValueError(f"{text!r} is not a run id; a run id looks like 7.2 (job 7, attempt 2)")
        return cls(int(job), int(attempt))
