"""Figures of a simulation, from a row per job."""

from __future__ import annotations

from swell.sim.metrics import JobRow, summary


def row(job: int, submitted_s: float, ended_s: float) -> JobRow:
    return JobRow(
        workload="w",
        policy="fifo",
        job=job,
        name=f"j{job}",
        family="",
        state="completed",
        submitted_s=submitted_s,
        started_s=submitted_s + 5.0,
        ended_s=ended_s,
        jct_s=ended_s - submitted_s,
        restarts=0,
        resizes=0,
        preemptions=0,
        migrations=0,
        gpu_s=3600.0,
        rho=1.0,
    )


def test_the_makespan_counts_from_the_first_submission() -> None:
    found = summary([row(1, 1000.0, 1300.0), row(2, 1100.0, 1200.0)], "adaptive")
    assert (found["makespan_s"], found["mean_jct_s"], found["mean_wait_s"]) == (300.0, 200.0, 5.0)
