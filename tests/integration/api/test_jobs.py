"""Jobs over HTTP: submit, list, look, change, remove."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from integration.api.conftest import Server
from swell.core import events as ev
from swell.core.job import JobSpec


def get(server: Server, path: str) -> Any:
    answer = server.client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(server: Server, path: str, body: Any = None) -> Any:
    answer = server.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_submit_json_and_look(server: Server) -> None:
    answer = server.client.post(
        "/v1/jobs", json={"name": "a", "command": "python x.py", "gpus": "1-4"}, headers={"Swell-User": "ad%C3%A8le"}
    )
    assert answer.status_code == 201
    notes = answer.json().pop("notes")
    assert answer.json() == {"ids": [1], "jobs": [{"id": 1, "name": "a"}], "batch": "", "notes": notes}
    assert "keeps 1 GPU until it ends" in notes[0]
    job = get(server, "/v1/jobs/1")
    assert (job["name"], job["user"], job["state"], job["gpus"]["max"]) == ("a", "adèle", "queued", 4)
    assert job["spec"]["command"] == ["/bin/sh", "-c", "python x.py"]
    assert get(server, "/v1/jobs/a")["id"] == get(server, "/v1/jobs/last")["id"] == 1


def test_many_at_once_are_a_batch(server: Server) -> None:
    answer = server.client.post("/v1/jobs", json=[{"command": "a"}, {"command": "b", "array": 3}]).json()
    assert [job["name"] for job in answer["jobs"]] == ["a", "b-0", "b-1", "b-2"]
    assert len(get(server, f"/v1/jobs?batch={answer['batch']}")["jobs"]) == 4


def test_jobs_may_depend_on_others_of_the_same_request(server: Server) -> None:
    ids = server.submit("name: prepare\ncommand: a\narray: 2\n---\nname: train\ncommand: b\ndepends_on: prepare")
    assert ids == [1, 2, 3]
    assert get(server, "/v1/jobs/3")["spec"]["depends_on"] == [1, 2]


def test_a_problem_in_one_of_many_accepts_none(server: Server) -> None:
    answer = server.client.post("/v1/jobs", json=[{"command": "a"}, {"command": "b", "gpus": "4-2"}])
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["path"] == "jobs[1].gpus"
    assert server.engine.state.jobs == {}


def test_the_same_key_twice_is_one_submission(server: Server) -> None:
    first = server.submit("command: x\narray: 2", **{"idempotency-key": "k1"})
    assert server.submit("command: x\narray: 2", **{"idempotency-key": "k1"}) == first
    assert len(server.engine.state.jobs) == 2


def test_the_same_key_with_a_deadline_from_now(server: Server) -> None:
    first = server.submit("command: x\ndeadline: 8h", **{"idempotency-key": "k2"})
    stored = server.engine.state.jobs[first[0]].spec
    seen: list[JobSpec] = []
    honest = server.engine.submit

    async def watched(specs: Sequence[JobSpec], **said: str) -> list[int]:
        seen.extend(specs)
        return await honest(specs, **said)

    server.engine.submit = watched  # type: ignore[method-assign]
    assert server.submit("command: x\ndeadline: 8h", **{"idempotency-key": "k2"}) == first
    assert seen == [stored]


def test_secrets_are_never_shown(server: Server) -> None:
    (job,) = server.submit("command: x\nenv: {TOKEN: hunter2, LR: 1}\nsecrets: [TOKEN]")
    assert get(server, f"/v1/jobs/{job}")["spec"]["env"] == {"TOKEN": "***", "LR": "1"}
    for path in (f"/v1/jobs/{job}", "/v1/jobs", "/v1/events?follow=false"):
        assert "hunter2" not in server.client.get(path).text


def test_lists_are_filtered_and_paged(server: Server) -> None:
    server.submit("command: x\narray: 7")
    server.engine.start(2)
    server.engine.end(server.engine.start(3))
    assert [j["id"] for j in get(server, "/v1/jobs?state=running")["jobs"]] == [2]
    assert [j["id"] for j in get(server, "/v1/jobs?state=ended")["jobs"]] == [3]
    assert [j["id"] for j in get(server, "/v1/jobs?state=queued")["jobs"]] == [7, 6, 5, 4, 1]
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        page = get(server, f"/v1/jobs?limit=3&after={after}")
        seen += [j["id"] for j in page["jobs"]]
        after = page["next"]
    assert seen == [7, 6, 5, 4, 3, 2, 1]


def test_those_that_ended_last_or_since_a_time_are_asked_for(server: Server) -> None:
    server.submit("command: x\narray: 4")
    for job in (3, 1, 2):
        server.client.post(f"/v1/jobs/{job}/cancel")
    found = get(server, "/v1/jobs?state=ended&order=ended&limit=2")
    assert ([job["id"] for job in found["jobs"]], found["next"]) == ([2, 1], None)
    ended = {job["id"]: job["ended_s"] for job in get(server, "/v1/jobs?state=ended")["jobs"]}
    later = max(ended.values()) + 1
    assert [job["id"] for job in get(server, f"/v1/jobs?ended_since={later}")["jobs"]] == [4]
    assert server.client.get("/v1/jobs?order=ended").status_code == 422


def test_a_running_job_shows_where_and_progress(server: Server) -> None:
    (job,) = server.submit("command: x\nepochs: 10")
    server.engine.start(job, gpus=(0, 1))
    view = get(server, f"/v1/jobs/{job}")
    assert (view["where"], view["gpus"]["held"], view["run"]) == (["here:0,1"], 2, f"{job}.1")
    assert view["progress"] == {
        "unit": "epoch",
        "epochs_done": 0,
        "epochs_saved": 0,
        "epochs_total": 10,
        "fraction": 0.0,
    }
    gpus = get(server, "/v1/nodes")["nodes"][0]
    assert (gpus["gpus_free"], gpus["gpus"][0]["jobs"]) == (2, [job])


def test_a_running_job_says_when_it_will_end_once_that_is_known(server: Server) -> None:
    (job,) = server.submit("command: x\nepochs: 10\nuses_library: true")
    server.engine.now = time.time()
    run = server.engine.start(job)
    assert get(server, f"/v1/jobs/{job}")["eta_s"] is None
    server.engine.record(
        ev.TrainingBegan(run=run, at_s=server.engine.now, epochs=10),
        ev.EpochEnded(run=run, at_s=server.engine.now, epoch=5, count=5, epoch_s=60.0, gpus=1, gpu_type="gpu"),
    )
    low, high = get(server, f"/v1/jobs/{job}")["eta_s"]
    assert low < server.engine.now + 300 < high
    server.engine.end(run)
    assert get(server, f"/v1/jobs/{job}")["eta_s"] is None


def test_commands(server: Server) -> None:
    (job,) = server.submit()
    assert post(server, f"/v1/jobs/{job}/pause")["paused"] is True
    assert post(server, f"/v1/jobs/{job}/resume")["paused"] is False
    assert post(server, f"/v1/jobs/{job}/priority", {"priority": "high"})["priority"] == 10
    assert post(server, f"/v1/jobs/{job}/cancel", {"reason": "wrong data"})["state"] == "cancelled"
    assert server.client.post(f"/v1/jobs/{job}/cancel").status_code == 409
    assert server.client.delete(f"/v1/jobs/{job}").status_code == 200
    assert server.client.get(f"/v1/jobs/{job}").status_code == 404


@pytest.mark.parametrize(
    ("body", "cancelled"),
    [
        ({"jobs": [1, "2"]}, [1, 2]),
        ({"jobs": ["x-*"]}, [1, 2, 3]),
        ({"jobs": ["last"]}, [4]),
        ({"name": "y"}, [4]),
        ({"all": True}, [1, 2, 3, 4]),
    ],
)
def test_bulk_cancel(server: Server, body: Any, cancelled: list[int]) -> None:
    server.submit("name: x\ncommand: x\narray: 3\n---\nname: y\ncommand: y")
    assert post(server, "/v1/jobs/cancel", body) == {"cancelled": cancelled, "problems": []}


def test_bulk_cancel_says_what_it_could_not(server: Server) -> None:
    server.submit()
    answer = post(server, "/v1/jobs/cancel", {"jobs": [1, 99, "nobody"]})
    assert answer["cancelled"] == [1]
    assert [p["job"] for p in answer["problems"]] == ["nobody", 99]


@pytest.mark.parametrize("ref", [10**36, "9" * 30, "\u0663", "1\u0663"])
def test_bulk_cancel_of_a_number_that_is_no_id_stops_the_others(server: Server, ref: int | str) -> None:
    server.submit()
    answer = post(server, "/v1/jobs/cancel", {"jobs": [ref, 1]})
    assert answer["cancelled"] == [1]
    assert [p["job"] for p in answer["problems"]] == [ref]


def test_bulk_cancel_of_the_last_of_no_jobs_is_a_problem(server: Server) -> None:
    answer = post(server, "/v1/jobs/cancel", {"jobs": ["last"]})
    assert answer["cancelled"] == []
    assert "there is no job yet" in answer["problems"][0]["detail"]


def test_bulk_cancel_of_nothing_is_refused(server: Server) -> None:
    assert server.client.post("/v1/jobs/cancel", json={}).status_code == 422


def test_series_are_what_the_library_measured_lately(server: Server) -> None:
    (job,) = server.submit()
    expected = {"loss": [[1.0, 0.5]]} if job == 1 else {}
    assert get(server, f"/v1/jobs/{job}/series") == {"series": expected}
    assert server.client.get("/v1/jobs/999/series").status_code == 404


def test_runs(server: Server) -> None:
    (job,) = server.submit()
    server.engine.end(server.engine.start(job), code=3, reason=ev.ExitReason.USER_ERROR)
    (run,) = get(server, f"/v1/jobs/{job}/runs")["runs"]
    assert (run["id"], run["exit_code"], run["where"]) == (f"{job}.1", 3, ["here:0"])
    assert get(server, f"/v1/runs/{job}.1") == run
    assert server.client.get(f"/v1/runs/{job}.9").status_code == 404
    assert server.client.get("/v1/runs/soup").status_code == 404
    assert get(server, f"/v1/jobs/{job}/explain")["summary"] == "behind 3 jobs"


@pytest.mark.parametrize("change", [{"gpus": "2-4"}, {"time_limit": "2h"}, {"priority": "high"}])
def test_one_thing_of_a_job_can_be_changed_and_the_rest_stays(server: Server, change: dict[str, str]) -> None:
    (job,) = server.submit("command: x\ngpus: 1")
    before = server.engine.state.jobs[job]
    answer = server.client.post(f"/v1/jobs/{job}/update", json=change)
    assert answer.status_code == 200, answer.text
    after = server.engine.state.jobs[job]
    changed = {
        "gpus": after.spec.gpus != before.spec.gpus,
        "time_limit": after.spec.time_limit_s != before.spec.time_limit_s,
        "priority": after.priority != before.priority,
    }
    assert [name for name, differs in changed.items() if differs] == list(change)


def test_a_change_of_nothing_is_refused_with_what_can_be_changed(server: Server) -> None:
    (job,) = server.submit("command: x")
    answer = server.client.post(f"/v1/jobs/{job}/update", json={})
    assert (answer.status_code, answer.json()["detail"]) == (422, "name gpus, time_limit or priority")
