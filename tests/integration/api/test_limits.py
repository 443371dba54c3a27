"""Limits and the audit log, by HTTP: each refusal a clear 4xx, each act with who and from where."""

from dataclasses import replace

from integration.api.conftest import Server
from integration.api.test_access import People, people
from swell.api.audit import Audit, Entry
from swell.config import Config
from swell.core.limits import Limits
from swell.core.snapshot import Options, Quota

__all__ = ["people"]  # a fixture


def limited(server: Server, options: Options) -> None:
    context = server.app.state.context
    server.app.state.context = replace(context, config=replace(context.config, options=options))


def test_quota_shows_use_and_limits_of_oneself_and_ones_team(server: Server, people: People) -> None:
    limited(
        server, Options(quotas={"vision": Quota(gpus=8)}, budgets={"vision": 100.0}, limits=Limits(queued=5, running=2))
    )
    people.own("ana-submitter")
    found = people.clients["ana-submitter"].get("/v1/quota").json()
    assert found["user"] == {
        "name": "ana-submitter",
        "use": {"queued": 0, "running": 1, "gpus": 1},
        "limits": {"queued": 5, "running": 2, "requests_per_s": 0.0},
    }
    assert found["team"]["quota"] == {"gpus": 8, "borrow": True}
    assert found["team"]["month"]["budget"] == 100.0
    assert found["team"]["month"]["gpu_hours"] >= 0.0
    assert found["team"]["use"] == {"queued": 0, "running": 2, "gpus": 2}  # with tim's
    assert "tim" in found["team"]["members"]


def test_one_request_cannot_fill_a_disk_with_an_array(people: People) -> None:
    body = {"command": "x", "env": {f"A{number}": "y" * 100_000 for number in range(8)}, "array": 10_000}
    refused = people.clients["tim"].post("/v1/jobs", json=body)
    assert refused.status_code == 422
    assert "makes 10,000 jobs of 7,6" in refused.json()["detail"]
    assert "put what all of them share into a file of the job" in refused.json()["detail"]


def test_quotas_of_others_are_for_operators(people: People) -> None:
    refused = people.clients["ana-submitter"].get("/v1/quota", params={"user": "eve"})
    assert (refused.status_code, "only operators" in refused.json()["detail"]) == (403, True)
    assert people.clients["ana-operator"].get("/v1/quota", params={"user": "eve"}).json()["user"]["name"] == "eve"
    names = [user["name"] for user in people.clients["ana-operator"].get("/v1/quotas").json()["users"]]
    assert {"eve", "tim", "ana-viewer"} <= set(names)


def test_too_many_requests_are_429_with_when_to_try_again_and_stop_nobody_else(server: Server, people: People) -> None:
    limited(server, Options(limits=Limits(requests_per_s=0.5)))
    answers = [people.clients["tim"].get("/v1/whoami") for _ in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 2
    assert int(answers[-1].headers["retry-after"]) in (1, 2, 3, 4)
    assert "tim sends more than 0.5 requests per second" in answers[-1].json()["detail"]
    assert people.clients["eve"].get("/v1/whoami").status_code == 200
    assert server.client.get("/v1/whoami").status_code == 200  # the owner is not limited


def test_the_audit_log_says_who_did_what_and_who_was_refused(people: People, config: Config) -> None:
    people.clients["tim"].post("/v1/jobs", json={"command": "x"})
    people.clients["tim"].post("/v1/jobs/2/cancel")
    people.client("swell_nonsense").get("/v1/jobs")
    people.clients["tim"].get("/v1/jobs")
    found = people.clients["ana-admin"].get("/v1/audit").json()["entries"]
    assert [(e["user"], e["method"], e["path"], e["status"], e["what"]) for e in found] == [
        ("", "GET", "/v1/jobs", 401, ""),
        ("tim", "POST", "/v1/jobs/2/cancel", 403, ""),
        ("tim", "POST", "/v1/jobs", 201, "job 3"),
    ]
    assert {entry["peer"] for entry in found} == {"127.0.0.1"}
    refused = people.clients["ana-admin"].get("/v1/audit", params={"refused": True, "user": "tim"}).json()["entries"]
    assert [entry["status"] for entry in refused] == [403]
    assert "command" not in (config.home / "audit.jsonl").read_text()
    assert (config.home / "audit.jsonl").stat().st_mode & 0o077 == 0


def test_what_was_refused_and_what_was_done_within_a_millisecond_stay_in_order(config: Config) -> None:
    times_s = iter((1_800_000_000.0001, 1_800_000_000.0003))
    audit = Audit(lambda: config.home, lambda: next(times_s))
    audit.note({"method": "POST", "path": "/v1/jobs"}, None, "10.0.0.1", 201)
    audit.note({"method": "GET", "path": "/v1/jobs"}, None, "10.0.0.1", 401)
    assert [entry["status"] for entry in audit.entries(lambda _: True, 10)] == [401, 201]


def test_attempts_that_were_refused_never_push_out_what_was_done(config: Config) -> None:
    audit = Audit(lambda: config.home, lambda: 1.0, max_bytes=1000)
    audit.note({"method": "POST", "path": "/v1/jobs"}, None, "10.0.0.1", 201)
    for _ in range(100):
        audit.note({"method": "GET", "path": "/v1/jobs"}, None, "10.0.0.2", 401)

    def done(entry: Entry) -> bool:
        return entry.status == 201

    assert len(audit.entries(done, 10)) == 1
    assert sum(path.stat().st_size for path in config.home.iterdir() if path.name.startswith("audit-refused")) < 3000


def test_a_disk_that_is_full_turns_nobody_away(people: People, config: Config) -> None:
    (config.home / "audit.jsonl").mkdir()
    assert people.clients["tim"].post("/v1/jobs", json={"command": "x"}).status_code == 201
