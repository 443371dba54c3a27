"""The authorization matrix, made from OpenAPI: every route × every role × whose job it is. And what streams, lists and
names give away."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from integration.api.conftest import TOKEN, Server
from swell.api import guard
from swell.api.access import NEEDS, Need
from swell.api.auth import run_token
from swell.core import account_events
from swell.core import events as ev
from swell.core.accounts import Role
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.state import JobRecord
from swell.daemon.accounts import digest_of, new_token

OWN, TEAMMATE, OTHER = "own", "teammate's", "other's"
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/jobs"): {"command": "x"},
    ("POST", "/v1/jobs/{job}/priority"): {"priority": 1},
    ("POST", "/v1/jobs/cancel"): {"jobs": ["no-such-job"]},
    ("POST", "/v1/nodes"): {"name": "new"},
    ("POST", "/v1/slots"): {"gpus": 1},
    ("PUT", "/v1/policy"): {"name": "fifo"},
    ("POST", "/v1/what-if"): {},
    ("PUT", "/v1/users/{name}"): {"role": "viewer"},
    ("POST", "/v1/tokens"): {},
}
SECRET = "hush-hush"
ROLES: dict[Need, Role] = {
    Need.SEE: Role.VIEWER,
    Need.SUBMIT: Role.SUBMITTER,
    Need.OPERATE: Role.OPERATOR,
    Need.ADMINISTER: Role.ADMIN,
}


class People:
    """Users of each role, `ana` among them, and a job of ana, of her teammate and of somebody else."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clients: dict[str, httpx.Client] = {}
        engine = server.engine
        for role in Role:
            self.add(f"ana-{role}", role, "vision")
        self.add("tim", Role.SUBMITTER, "vision")
        self.add("eve", Role.SUBMITTER, "speech")
        self.jobs: dict[str, int] = {}
        for job, user, team in ((1, "tim", "vision"), (2, "eve", "speech")):
            self.submit(job, user, team)
        self.jobs = {TEAMMATE: 1, OTHER: 2}
        engine.state.last_job = 2

    def add(self, name: str, role: Role, team: str) -> None:
        token, text = new_token()
        self.server.engine.record(
            account_events.UserSet(name=name, role=role, team=team, at_s=1.0),
            account_events.TokenIssued(token=token, user=name, digest=digest_of(text), role=role, at_s=1.0),
        )
        self.clients[name] = self.client(text)

    def client(self, bearer: str) -> httpx.Client:
        """Closed with the others."""
        headers = {"Authorization": f"Bearer {bearer}"}
        return self.clients.setdefault(bearer, httpx.Client(base_url=self.server.url, headers=headers, timeout=10))

    def submit(self, job: int, user: str, team: str) -> None:
        spec = JobSpec(name="train", command=("echo", SECRET), user=user, team=team, files="a" * 64)
        engine = self.server.engine
        engine.record(ev.JobSubmitted(job=job, spec=spec, at_s=1.0))
        run = engine.start(job)
        engine.write(run, SECRET.encode())

    def own(self, user: str) -> int:
        job = self.server.engine.state.last_job + 1
        self.submit(job, user, "vision")
        return job


@pytest.fixture
def people(server: Server) -> Iterator[People]:
    found = People(server)
    yield found
    for client in found.clients.values():
        client.close()


def allowed(need: Need, role: Role, whose: str) -> bool:
    """The rule, written a second time and more slowly."""
    if need is Need.OWN:
        return False
    if need is Need.READ_JOB:
        return role in (Role.OPERATOR, Role.ADMIN) or whose in (OWN, TEAMMATE)
    if need is Need.ACT_ON_JOB:
        return role in (Role.OPERATOR, Role.ADMIN) or (role is Role.SUBMITTER and whose == OWN)
    return list(Role).index(role) >= list(Role).index(ROLES[need])


def ask(client: httpx.Client, method: str, template: str, job: int) -> httpx.Response:
    filled = template.format(
        job=job, run=f"{job}.1", node="here", action="uncordon", content_hash="b" * 64, name="new", token="none"
    )
    body = BODIES.get((method, template))
    content = json.dumps(body).encode() if body is not None else None
    params = {"follow": "false"} if template in ("/v1/events", "/v1/jobs/{job}/logs") else {}
    with client.stream(method, filled, content=content, params=params) as answer:
        if template != "/v1/live":
            answer.read()
        return answer


ROUTES = sorted(NEEDS)


@pytest.mark.parametrize(("method", "template"), ROUTES, ids=[f"{m} {p}" for m, p in ROUTES])
def test_every_route_is_open_to_exactly_those_it_should_be(people: People, method: str, template: str) -> None:
    need = NEEDS[method, template]
    about_job = need in (Need.READ_JOB, Need.ACT_ON_JOB)
    for role in Role:
        name = f"ana-{role}"
        for whose in (OWN, TEAMMATE, OTHER) if about_job else (OWN,):
            job = people.own(name) if whose == OWN else people.jobs[whose]
            answer = ask(people.clients[name], method, template, job)
            refused = answer.status_code == 403
            assert refused != allowed(need, role, whose), (method, template, role, whose, answer.status_code)
            assert answer.status_code != 401, (method, template, role)
            assert answer.status_code < 500, (method, template, role, answer.text)
            if refused:
                assert SECRET not in answer.text


@pytest.mark.parametrize("bearer", ["", "run", "expired"])
def test_no_route_is_open_to_nobody_to_a_run_or_to_a_token_that_is_over(people: People, bearer: str) -> None:
    engine = people.server.engine
    token, text = new_token()
    engine.record(
        account_events.TokenIssued(
            token=token, user="ana-admin", digest=digest_of(text), role=Role.ADMIN, at_s=1.0, expires_s=2.0
        )
    )
    shown = {"": "", "run": f"Bearer {run_token(TOKEN, RunId(1, 1))}", "expired": f"Bearer {text}"}[bearer]
    before = engine.state.seq
    with httpx.Client(base_url=people.server.url, headers={"Authorization": shown}, timeout=10) as client:
        for method, template in ROUTES:
            people.server.app.state.attempts._peers.clear()  # else it is 429 after twenty
            answer = ask(client, method, template, 2)
            assert (answer.status_code, engine.state.seq) == (401, before), (method, template)


def test_a_list_shows_the_queue_to_all_but_what_jobs_printed_and_their_files_to_few(people: People) -> None:
    engine = people.server.engine
    engine.end(next(run for run in engine.all_runs if run.job == 2), ev.ExitReason.USER_ERROR, 1)
    engine.state.jobs[2] = _with_message(engine.state.jobs[2])
    lines = {job["id"]: job for job in people.clients["ana-submitter"].get("/v1/jobs").json()["jobs"]}
    assert {job: line["user"] for job, line in lines.items()} == {1: "tim", 2: "eve"}
    assert (lines[1]["files"], lines[2]["files"], lines[2]["message"]) == ("a" * 64, "", "")
    assert SECRET not in json.dumps(lines[2])
    seen = people.clients["ana-operator"].get("/v1/jobs").json()["jobs"]
    assert next(line for line in seen if line["id"] == 2)["message"] == SECRET


def _with_message(record: JobRecord) -> JobRecord:
    return replace(record, message=SECRET)


def test_what_somebody_wrote_when_they_cancelled_is_for_those_who_may_read_the_job(people: People) -> None:
    engine = people.server.engine
    run = next(run for run in engine.all_runs if run.job == 2)
    engine.record(ev.RunStopRequested(run=run, why=ev.StopWhy.CANCELLED, reason=SECRET, at_s=2.0))
    for name, knows in (("ana-submitter", False), ("eve", True), ("ana-operator", True)):
        lines = {job["id"]: job for job in people.clients[name].get("/v1/jobs").json()["jobs"]}
        assert lines[2]["why"] == (f"cancelled: {SECRET}" if knows else "cancelled")
        spans = people.clients[name].get("/v1/timeline", params={"from": 1, "to": 10**10}).json()["spans"]
        reasons = {span["job"]: span.get("stop_reason", "") for span in spans}
        assert reasons == {1: "", 2: SECRET if knows else ""}


def test_events_of_others_jobs_say_only_that_something_happened(people: People) -> None:
    text = people.clients["ana-submitter"].get("/v1/events", params={"follow": "false"}).text
    views = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    submitted = {view["job"]: view for view in views if view["type"] == "JobSubmitted"}
    assert submitted[1]["spec"]["command"] == ["echo", SECRET]
    assert set(submitted[2]) == {"seq", "type", "at_s", "job"}
    assert not [view for view in views if view["type"] in ("UserSet", "TokenIssued")]


def test_no_stream_shows_the_digest_of_a_token(people: People) -> None:
    text = people.server.client.get("/v1/events", params={"follow": "false"}).text
    assert "TokenIssued" in text
    assert "digest" not in text


def test_a_live_page_shows_others_jobs_without_what_they_printed(people: People) -> None:
    engine = people.server.engine
    engine.state.jobs[2] = _with_message(engine.state.jobs[2])
    with people.clients["ana-viewer"].stream("GET", "/v1/live") as answer:
        text = ""
        for part in answer.iter_text():
            text += part
            if "event: jobs" in text and text.endswith("\n\n"):
                break
    assert '"user":"eve"' in text
    assert SECRET not in text


def test_a_name_means_the_same_job_to_the_guard_and_to_the_route(people: People) -> None:
    """`train` is the latest of that name, eve's: tim may not act on it, though he has one of that name as well."""
    answer = people.clients["tim"].post("/v1/jobs/train/cancel")
    assert answer.status_code == 403
    assert "belongs to eve" in answer.json()["detail"]


@pytest.mark.parametrize("ref", ["2", "02", "٢", "²", "2 ", "+2", "2_", "train", "last"])
def test_however_a_job_is_written_nobody_reads_another_s(people: People, ref: str) -> None:
    """Whatever the guard takes a name for, the route must not take it for something else."""
    people.server.engine.state.last_job = 2
    quoted = quote(ref, safe="")
    for path in (f"/v1/jobs/{quoted}", f"/v1/jobs/{quoted}/logs", f"/v1/runs/{quoted}.1", f"/v1/runs/2.{quoted}"):
        answer = people.clients["tim"].get(path)
        assert answer.status_code in (403, 404), (path, answer.text)
        assert SECRET not in answer.text
    assert people.clients["eve"].get("/v1/runs/2.1").status_code == 200


STREAMS = ["/v1/events", "/v1/live", "/v1/jobs/1/logs?follow=true"]
REVOKED, REMOVED, DEMOTED = "revoked", "removed", "demoted"


def shut_out(people: People, how: str) -> None:
    """The operator."""
    name = f"ana-{Role.OPERATOR}"
    token = next(one.id for one in people.server.engine.state.tokens.values() if one.user == name)
    events: dict[str, ev.Event] = {
        REVOKED: account_events.TokenRevoked(token=token, at_s=2.0),
        REMOVED: account_events.UserRemoved(name=name, at_s=2.0),
        DEMOTED: account_events.UserSet(name=name, role=Role.VIEWER, team="", at_s=2.0),
    }
    people.server.engine.record(events[how])


@pytest.mark.parametrize(
    ("path", "how"),
    [*((path, how) for path in STREAMS for how in (REVOKED, REMOVED)), ("/v1/jobs/train/logs?follow=true", DEMOTED)],
)
def test_a_stream_ends_when_its_reader_may_no_longer_read(
    people: People, path: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "RECHECK_S", 0.0)
    engine = people.server.engine
    with people.clients[f"ana-{Role.OPERATOR}"].stream("GET", path) as answer:
        assert answer.status_code == 200
        parts = answer.iter_text()
        next(parts)
        shut_out(people, how)
        for later, _ in enumerate(parts, start=1):  # ends, or else the client's time is up
            assert later < 20, "the stream goes on"
            for run in engine.all_runs:
                engine.write(run, b"more")
            engine.record(ev.PriorityChanged(job=1, priority=later, at_s=3.0))


def test_requests_at_once_are_bounded_per_user(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_AT_ONCE", 1)
    with people.clients["tim"].stream("GET", "/v1/events") as first:
        assert first.status_code == 200
        answer = people.clients["tim"].get("/v1/jobs")
        assert (answer.status_code, answer.json()["title"]) == (429, "Too many at once")
        assert people.clients["eve"].get("/v1/jobs").status_code == 200  # nobody else waits for it


def test_many_jobs_at_once_are_cancelled_only_where_the_caller_may(people: People) -> None:
    answer = people.clients["tim"].post("/v1/jobs/cancel", json={"all": True}).json()
    assert answer["cancelled"] == [1]
    assert "belongs to eve" in answer["problems"][0]["detail"]


@pytest.mark.parametrize(("field", "value"), [("user", "eve"), ("team", "speech")])
def test_nobody_submits_as_somebody_else(people: People, field: str, value: str) -> None:
    answer = people.clients["tim"].post("/v1/jobs", json={"command": "x", field: value})
    assert answer.status_code == 422
    assert "tim" in answer.text or "vision" in answer.text


def test_a_job_belongs_to_who_submits_it_whatever_their_client_claims(people: People) -> None:
    ids = people.clients["tim"].post("/v1/jobs", json={"command": "x"}, headers={"Swell-User": "eve"}).json()["ids"]
    spec = people.server.engine.state.jobs[ids[0]].spec
    assert (spec.user, spec.team) == ("tim", "vision")


def test_without_an_idempotency_key_each_request_is_a_new_one(people: People) -> None:
    answers = [people.clients["tim"].post("/v1/jobs", json={"command": "x"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["ids"] != answers[1].json()["ids"]


def test_an_idempotency_key_is_its_users_own(people: People) -> None:
    headers = {"Idempotency-Key": "k"}
    mine = people.clients["tim"].post("/v1/jobs", json={"command": "x"}, headers=headers).json()["ids"]
    theirs = people.clients["eve"].post("/v1/jobs", json={"command": "x"}, headers=headers).json()["ids"]
    again = people.clients["tim"].post("/v1/jobs", json={"command": "x"}, headers=headers).json()["ids"]
    assert mine == again != theirs


# -- tokens and sessions ----------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_works_and_stops_when_revoked(people: People) -> None:
    made = people.clients["tim"].post("/v1/tokens", json={"note": "laptop", "days": 1}).json()
    fresh = people.client(made["token"])
    issued_s = people.server.engine.state.tokens[made["id"]].made_s
    assert made["expires_s"] == issued_s + 86400.0
    assert fresh.get("/v1/whoami").json() == {"user": "tim", "role": "submitter", "team": "vision", "by": "token"}
    listed = {token["id"]: token for token in fresh.get("/v1/tokens").json()["tokens"]}
    assert {token["user"] for token in listed.values()} == {"tim"}
    assert listed[made["id"]]["last_used_s"] is not None
    assert made["token"] not in fresh.get("/v1/tokens").text
    assert people.clients["eve"].delete(f"/v1/tokens/{made['id']}").status_code == 404
    assert people.clients["tim"].delete(f"/v1/tokens/{made['id']}").status_code == 200
    assert fresh.get("/v1/whoami").status_code == 401


def test_a_narrow_token_makes_no_wider_one(people: People) -> None:
    narrow = people.clients["ana-admin"].post("/v1/tokens", json={"role": "viewer"}).json()["token"]
    client = people.client(narrow)
    assert client.post("/v1/tokens", json={"role": "admin"}).status_code == 403
    assert client.post("/v1/tokens", json={}).json()["role"] == "viewer"
    assert client.post("/v1/tokens", json={"user": "tim"}).status_code == 403


def test_a_token_makes_none_that_outlasts_it(people: People) -> None:
    """Else what leaked for a day would be a way to stay for ever."""
    made = people.clients["tim"].post("/v1/tokens", json={"days": 1}).json()
    for days in (0, 90):
        again = people.client(made["token"]).post("/v1/tokens", json={"days": days}).json()
        assert again["expires_s"] == made["expires_s"]
    assert people.clients["tim"].post("/v1/tokens", json={"days": 0}).json()["expires_s"] is None
    admin = people.clients["ana-admin"].post("/v1/tokens", json={"days": 1}).json()
    theirs = people.client(admin["token"]).post("/v1/tokens", json={"user": "tim", "days": 90}).json()
    assert theirs["expires_s"] > admin["expires_s"]


def test_a_narrow_token_revokes_no_wider_one(people: People) -> None:
    ana = people.clients["ana-admin"]
    wide, narrow = (ana.post("/v1/tokens", json={"role": role}).json() for role in ("operator", "viewer"))
    assert people.client(narrow["token"]).delete(f"/v1/tokens/{wide['id']}").status_code == 403
    assert people.client(narrow["token"]).delete(f"/v1/tokens/{narrow['id']}").status_code == 200
    assert ana.delete(f"/v1/tokens/{wide['id']}").status_code == 200


def test_a_session_has_what_its_user_may_do_now(people: People) -> None:
    code = people.clients["tim"].post("/v1/ui/codes").json()["code"]
    opened = httpx.post(f"{people.server.url}/v1/ui/sessions", json={"code": code}).json()
    assert opened["user"] == "tim"
    page = people.client(opened["token"])
    assert page.get("/v1/whoami").json()["role"] == "submitter"
    assert page.get("/v1/jobs/2").status_code == 403
    assert page.post("/v1/ui/codes").status_code == 403
    assert page.post("/v1/tokens", json={}).status_code == 403
    assert page.post("/v1/jobs", json={"command": "x"}).status_code == 201
    people.server.engine.record(account_events.UserSet(name="tim", role=Role.VIEWER, team="", at_s=2.0))
    assert page.post("/v1/jobs", json={"command": "x"}).status_code == 403
    people.server.engine.record(account_events.UserRemoved(name="tim", at_s=3.0))
    assert page.get("/v1/whoami").status_code == 401


def session_of(people: People, bearer: str) -> httpx.Client:
    code = people.client(bearer).post("/v1/ui/codes").json()["code"]
    return people.client(httpx.post(f"{people.server.url}/v1/ui/sessions", json={"code": code}).json()["token"])


def shown_directly(people: People, bearer: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {bearer}"}
    return people.client(httpx.post(f"{people.server.url}/v1/ui/sessions", headers=headers).json()["token"])


@pytest.mark.parametrize("opened", [session_of, shown_directly])
def test_a_session_never_gives_more_than_the_token_that_opened_it(people: People, opened: Any) -> None:
    made = people.clients["ana-admin"].post("/v1/tokens", json={"role": "viewer"}).json()
    page = opened(people, made["token"])
    assert page.get("/v1/whoami").json()["role"] == "viewer"
    assert page.put("/v1/users/mallory", json={"role": "admin"}).status_code == 403
    assert page.get("/v1/jobs/2").status_code == 403
    assert people.clients["ana-admin"].delete(f"/v1/tokens/{made['id']}").status_code == 200
    assert page.get("/v1/whoami").status_code == 401  # revoked with it


def test_the_owner_needs_no_user_and_may_act_for_others(server: Server) -> None:
    assert server.client.get("/v1/whoami", headers={"Swell-User": "kim"}).json()["by"] == "owner"
    ids = server.client.post("/v1/jobs", json={"command": "x", "user": "ana"}).json()["ids"]
    assert server.engine.state.jobs[ids[0]].spec.user == "ana"
