"""Health of the daemon for `swell status`, the dashboard and probes, and the files it could not delete. Read only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from swell.core.state import ENDED, State
from swell.daemon.cleanup import Cleanup
from swell.daemon.committer import Committer
from swell.daemon.forecasts import Forecasts
from swell.daemon.passes import Passes
from swell.daemon.supervisor import Supervisor
from swell.ports import Check

DECIDES = ("recovery", "watch", "passes")
"""Tasks without which the daemon decides nothing, or decides from outdated state."""

SLOW_S = 5.0
"""A store that has not answered a write for this long is reported as not working."""


def health(
    committer: Committer,
    tasks: Supervisor,
    passes: Passes,
    forecasts: Forecasts,
    findings: Sequence[Check],
    now_s: float,
) -> dict[str, object]:
    """The health of the daemon as a document. `findings`: checks of executors that a person should see."""
    state = committer.state
    works = committer.failure is None and committer.silent_s < SLOW_S
    return {
        "ready": works and not any(tasks.down(name) for name in DECIDES),
        "degraded": _degraded(committer, tasks),
        "tasks": [
            {"name": death.task, "down": death.down, "deaths": death.deaths, "why": death.why}
            for death in tasks.deaths.values()
        ],
        "seq": committer.durable_seq,
        "now_s": now_s,
        "jobs": _by_state(state),
        "lost_s": state.lost_s,
        "passes": passes.count,
        "deciding": passes.decider.trouble,
        "policy": state.policy,
        "placer": state.placer,
        "forecast": forecasts.accuracy.summary(),
        "findings": [asdict(found) for found in findings],
    }


def _by_state(state: State) -> dict[str, int]:
    found: dict[str, int] = {name: state.counts.get(name, 0) for name in sorted(ENDED)}
    for job in state.active:
        name = state.jobs[job].state
        found[name] = found.get(name, 0) + 1
    return found


def _degraded(committer: Committer, tasks: Supervisor) -> str:
    """What does not work now, as a sentence; empty if everything works."""
    if committer.failure is not None:
        return f"nothing can be written or decided; running jobs go on: {committer.failure}"
    if committer.silent_s >= SLOW_S:
        return (
            f"nothing can be written or decided; running jobs go on: the database has not answered for "
            f"{committer.silent_s:.0f} s. It is waited for; look at its server or disk"
        )
    down = [death for death in tasks.deaths.values() if death.down]
    return "; ".join(f"the task {death.task} died and is started again soon ({death.why})" for death in down)


def leftovers(cleanup: Cleanup, state: State) -> dict[str, object]:
    """Files of jobs that are not in the record: those that could not be deleted, and those of another database."""
    unknown = cleanup.unknown
    return {
        "undeleted": [
            {"job": found.job, "why": found.why, "tries": found.tries, "given_up": found.given_up}
            for found in cleanup.undeleted.values()
        ],
        "unknown": {
            "jobs": len(unknown),
            "ids": [ids for ids in state.skipped if any(ids[0] <= job <= ids[1] for job in unknown)],
        },
    }
