"""Each command about a job is carried out once, in the name of who gave it, and answered with the job afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from integration.api.conftest import Server
from swell.core import account_events
from swell.core import events as ev
from swell.core.accounts import Role
from swell.daemon.accounts import digest_of, new_token

COMMANDS: dict[str, tuple[dict[str, Any] | None, type[ev.Event], dict[str, Any]]] = {
    "cancel": ({"reason": "too long"}, ev.JobCancelled, {"reason": "too long"}),
    "pause": (None, ev.JobPaused, {}),
    "resume": (None, ev.JobResumed, {}),
    "priority": ({"priority": "high"}, ev.PriorityChanged, {"priority": 10}),
    "update": ({"time_limit": "2h"}, ev.JobUpdated, {"time_limit_s": 7200.0}),
    "requeue": (None, ev.JobRequeued, {}),
}
"""Body, the event, and what is in it."""


@pytest.fixture
def operator(server: Server) -> Iterator[httpx.Client]:
    token, text = new_token()
    server.engine.record(
        account_events.UserSet(name="olga", role=Role.OPERATOR, team="", at_s=1.0),
        account_events.TokenIssued(token=token, user="olga", digest=digest_of(text), role=Role.OPERATOR, at_s=1.0),
    )
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {text}"}, timeout=10) as client:
        yield client


def prepared(server: Server, command: str) -> int:
    """A job of which this can be asked."""
    (job,) = server.submit()
    if command == "resume":
        server.engine.record(ev.JobPaused(job=job, at_s=server.engine.now))
    if command == "requeue":
        server.engine.end(server.engine.start(job), code=3, reason=ev.ExitReason.USER_ERROR)
    return job


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_carried_out_once_and_answered_with_the_job(
    server: Server, operator: httpx.Client, command: str
) -> None:
    body, kind, fields = COMMANDS[command]
    job = prepared(server, command)
    before = len(server.engine.events)
    answer = operator.post(f"/v1/jobs/{job}/{command}", json=body)
    assert answer.status_code == 200, answer.text
    (event,) = [stored.event for stored in server.engine.events[before:]]
    assert isinstance(event, kind)
    assert {name: getattr(event, name) for name in ("by", *fields)} == {"by": "olga", **fields}
    answered, (listed,) = answer.json(), server.client.get("/v1/jobs").json()["jobs"]
    assert answered.pop("waited_s") <= listed.pop("waited_s")
    assert answered == listed, "as it is afterwards"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_about_a_job_that_there_is_not_is_refused_and_changes_nothing(server: Server, command: str) -> None:
    before = len(server.engine.events)
    assert server.client.post(f"/v1/jobs/999/{command}", json=COMMANDS[command][0]).status_code == 404
    assert len(server.engine.events) == before
