"""What the dashboard is served with: files, sessions, the timeline, the live stream, checks of job files."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from integration.api.conftest import TOKEN, Server
from swell.api import live, sessions
from swell.core import events as ev
from swell.core.accounts import Way
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.resources import Allocation, Contact, Part
from swell.web import assets

Message = tuple[str, Any, str]
"""Its event, its data, its id."""
LIMIT_S = 30.0
"""For one look at the live stream, which says something every 15 s."""


@pytest.fixture
def built(one_server: Server, tmp_path: Path) -> Iterator[None]:
    """A daemon with a built dashboard."""
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>Swell</title>")
    (folder / "assets" / "main-abc123.js").write_text("console.log(1);" * 100)
    before, one_server.app.state.assets = one_server.app.state.assets, assets.Assets(folder)
    yield
    one_server.app.state.assets = before


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx.Client]:
    """A browser that nobody has given a token."""
    with httpx.Client(base_url=server.url, timeout=10) as client:
        yield client


def session(server: Server, token: str = TOKEN) -> str:
    answer = httpx.post(f"{server.url}/v1/ui/sessions", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


# -- files ------------------------------------------------------------------------------------------------------------


def test_the_page_is_served_to_anybody_with_strict_headers(server: Server, stranger: httpx.Client, built: None) -> None:
    for path in ("/", "/jobs", "/jobs/12", "/submit", "/forecast", "/policies", "/machines"):
        answer = stranger.get(path)
        assert answer.status_code == 200, path
        assert "Swell" in answer.text
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "style-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"


def test_files_with_a_hash_in_their_name_are_kept_for_ever_and_sent_compressed(
    server: Server, stranger: httpx.Client, built: None
) -> None:
    answer = stranger.get("/assets/main-abc123.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < len(answer.content)
    plain = stranger.get("/assets/main-abc123.js", headers={"Accept-Encoding": "identity"})
    assert plain.content == answer.content


@pytest.mark.parametrize("path", ["/../token", "/assets/../../token", "/assets/%2e%2e/index.html", "/token", "/etc"])
def test_never_a_file_that_is_not_of_the_dashboard(
    server: Server, stranger: httpx.Client, built: None, path: str
) -> None:
    assert stranger.get(path).status_code in (401, 404)


def test_without_a_built_dashboard_a_page_says_how_to_build_it(
    server: Server, stranger: httpx.Client, tmp_path: Path
) -> None:
    server.app.state.assets = assets.Assets(tmp_path / "nothing")
    answer = stranger.get("/")
    assert answer.status_code == 200
    assert "make web" in answer.text
    assert stranger.get("/favicon.svg").status_code == 200


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_a_code_opens_one_session_once(server: Server, stranger: httpx.Client) -> None:
    code = server.client.post("/v1/ui/codes", headers={"Swell-User": "ada"}).json()["code"]
    first = stranger.post("/v1/ui/sessions", json={"code": code})
    assert first.status_code == 201
    assert first.json()["user"] == "ada"
    bearer = {"Authorization": f"Bearer {first.json()['token']}"}
    assert stranger.get("/v1/nodes", headers=bearer).status_code == 200
    assert stranger.get("/v1/nodes").status_code == 401
    again = stranger.post("/v1/ui/sessions", json={"code": code})
    assert again.status_code == 401
    assert "swell ui" in again.json()["detail"]


def test_a_session_makes_neither_codes_nor_sessions(server: Server, stranger: httpx.Client) -> None:
    bearer = {"Authorization": f"Bearer {session(server)}"}
    assert stranger.post("/v1/ui/codes", headers=bearer).status_code == 403
    assert stranger.post("/v1/ui/sessions", headers=bearer).status_code == 401
    assert stranger.post("/v1/ui/codes").status_code == 401


def test_a_wrong_token_opens_nothing(server: Server, stranger: httpx.Client) -> None:
    answer = stranger.post("/v1/ui/sessions", headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401


ME = sessions.Holder(Way.TOKEN, "ana", "0badcafe")


def test_codes_and_sessions_end_by_time() -> None:
    now = [1000.0]
    kept = sessions.Sessions("s" * 40, lambda: now[0])
    code, (token, ends_s) = kept.new_code(ME), kept.open(ME)
    assert kept.holder(token) == ME
    now[0] += sessions.CODE_S
    assert kept.redeem(code) is None
    now[0] = ends_s
    assert kept.holder(token) is None


def test_a_session_outlives_a_restart_but_not_a_new_token_and_cannot_be_prolonged() -> None:
    now = [1000.0]
    token, _ = sessions.Sessions("s" * 40, lambda: now[0]).open(ME)
    assert sessions.Sessions("s" * 40, lambda: now[0]).holder(token) == ME
    assert sessions.Sessions("other" * 8, lambda: now[0]).holder(token) is None
    prefix, ends, rest = token.partition(".")[0][:3], token[3:].partition(".")[0], token[3:].partition(".")[2]
    assert sessions.Sessions("s" * 40, lambda: now[0]).holder(f"{prefix}{int(ends) + 1}.{rest}") is None


# -- timeline ---------------------------------------------------------------------------------------------------------


def test_the_timeline_says_who_had_what_when_and_why(server: Server) -> None:
    engine = server.engine
    first, second = server.submit("command: x\nname: a\nuses_library: true\narray: 2")
    engine.now = 2000.0
    run = engine.start(first, gpus=(0, 1))
    engine.now = 2010.0
    engine.stop(run)
    engine.now = 2020.0
    engine.start(second, gpus=(1,))
    found = server.client.get("/v1/timeline?from=1000&to=3000").json()
    spans = {span["job"]: span for span in found["spans"]}
    assert spans[first]["where"] == [["here", [0, 1]]]
    assert (spans[first]["from_s"], spans[first]["to_s"]) == (2000.0, 2010.0)
    assert spans[first]["stop"] == "preempted"
    assert spans[first]["reason"]
    assert "to_s" not in spans[second]
    assert found["seq"] == engine.state.seq
    assert not found["truncated"]
    assert server.client.get("/v1/timeline?from=1000&to=3000&limit=1").json()["truncated"]
    assert server.client.get("/v1/timeline?from=2011&to=2019").json()["spans"] == []


def test_growth_in_place_is_two_spans_of_one_run(server: Server) -> None:
    engine = server.engine
    engine.record(
        ev.JobSubmitted(
            job=1,
            spec=JobSpec(name="h", command=("x",), launcher=Launcher.HOROVOD, gpus=GpuRequest(min=1, max=2)),
            at_s=1.0,
        )
    )
    engine.now = 2000.0
    engine.start(1)
    grown = Allocation(parts=(Part(node="here", gpus=(0, 1)),), gpu_type="gpu")
    engine.record(ev.RunResized(run=RunId(1, 1), allocation=grown, at_s=2005.0))
    spans = server.client.get("/v1/timeline?from=1000&to=3000").json()["spans"]
    assert [(s["from_s"], s.get("to_s"), s["where"][0][1]) for s in spans] == [
        (2000.0, 2005.0, [0]),
        (2005.0, None, [0, 1]),
    ]


# -- live -------------------------------------------------------------------------------------------------------------


def stream(server: Server, headers: dict[str, str] | None = None) -> Iterator[Message]:
    with server.client.stream("GET", "/v1/live", headers=headers or {}) as answer:
        assert answer.status_code == 200
        current: dict[str, str] = {}
        began_s = time.monotonic()
        for line in answer.iter_lines():
            assert time.monotonic() - began_s < LIMIT_S, "what is waited for has not come"
            if not line and current:
                yield current["event"], json.loads(current["data"]), current.get("id", "")
                current = {}
            elif line and not line.startswith(":"):
                key, _, value = line.partition(": ")
                current[key] = value


def first_change(server: Server, headers: dict[str, str] | None = None) -> list[Message]:
    found = []
    for item in stream(server, headers):
        found.append(item)
        if item[0] == "change":
            return found
    return found


def test_a_page_gets_everything_then_what_changes(server: Server) -> None:
    (job,) = server.submit("command: x\nname: a")
    threading.Timer(0.3, lambda: server.engine.start(job)).start()
    reset, jobs, change = first_change(server)
    assert reset[0] == "reset"
    assert [node["name"] for node in reset[1]["nodes"]] == ["here"]
    assert [line["id"] for line in jobs[1]["jobs"]] == [job]
    assert [line["state"] for line in change[1]["jobs"]] == ["running"]
    assert [event["type"] for event in change[1]["happened"]] == ["RunPlanned", "RunStarted"]
    assert change[1]["cluster"]["nodes"][0]["gpus"][0]["jobs"] == [job]


def test_a_page_that_comes_back_gets_what_it_missed_and_else_everything(server: Server) -> None:
    (job,) = server.submit("command: x\nname: a")
    keep_open = threading.Event()
    seen = []

    def other_page() -> None:
        for item in stream(server):
            seen.append(item)
            if keep_open.is_set():
                return

    other = threading.Thread(target=other_page, daemon=True)
    other.start()
    threading.Timer(0.4, lambda: server.engine.start(job)).start()
    mine = first_change(server)
    assert mine[-1][2]
    boot, number = mine[-1][2].split("-")
    missed = first_change(server, {"Last-Event-ID": f"{boot}-{int(number) - 1}"})
    assert [item[0] for item in missed] == ["change"]
    assert missed[0][1]["happened"] == mine[-1][1]["happened"]
    keep_open.set()
    server.engine.end(RunId(job, 1))
    other.join(5)
    threading.Timer(0.4, lambda: server.submit("command: y")).start()
    assert first_change(server, {"Last-Event-ID": "feedbeef-7"})[0][0] == "reset"


def test_a_page_that_comes_back_after_a_time_without_pages_gets_everything(server: Server) -> None:
    """Nobody has kept what happened meanwhile."""
    (job,) = server.submit("command: x\nname: a")
    threading.Timer(0.3, lambda: server.engine.start(job)).start()
    last = first_change(server)[-1][2]
    until_s = time.monotonic() + LIMIT_S
    while server.app.state.live._readers:
        assert time.monotonic() < until_s, "the page has been left"
        time.sleep(0.01)
    (missed,) = server.submit("command: x\nname: b")
    threading.Timer(0.3, lambda: server.submit("command: x\nname: c")).start()
    reset, jobs, *_ = first_change(server, {"Last-Event-ID": last})
    assert reset[0] == "reset"
    assert missed in [line["id"] for line in jobs[1]["jobs"]]


def test_a_removed_job_leaves_the_page(server: Server) -> None:
    (job,) = server.submit("command: x")
    server.engine.end(server.engine.start(job))
    threading.Timer(0.3, lambda: server.client.delete(f"/v1/jobs/{job}")).start()
    assert first_change(server)[-1][1]["removed"] == [job]


def test_a_page_hears_of_a_daemon_that_cannot_write(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event tells of that: it could not be written either."""
    monkeypatch.setattr(live, "QUIET_S", 0.1)
    well = server.engine.health()
    why = "nothing can be written or decided; running jobs go on: the disk is full"
    messages = stream(server)
    next(messages)
    monkeypatch.setattr(server.engine, "health", lambda: {**well, "degraded": why})
    change = next(data for event, data, _ in messages if event == "change")
    assert change["cluster"]["health"]["degraded"] == why


def test_a_page_hears_how_long_a_machine_has_been_silent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """And how long its jobs may go on without the daemon: both are counted."""
    monkeypatch.setattr(live, "QUIET_S", 0.1)
    monkeypatch.setattr(live, "SILENCE_S", 1.0)
    away = ev.NodeContactChanged(node="here", contact=Contact.AWAY, at_s=server.engine.now_s() - 60, why="no answer")
    server.engine.record(away)
    changes = (data for event, data, _ in stream(server) if event == "change" and "cluster" in data)
    said = [next(changes)["cluster"]["nodes"][0]["why"] for _ in range(2)]
    assert said[0] != said[1], said


# -- checks of job files ----------------------------------------------------------------------------------------------


def validated(server: Server, text: str) -> Any:
    answer = server.client.post("/v1/jobs/validate", content=text, headers={"content-type": "application/yaml"})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("name: a\ncommand: x\ngpus:\n  min: 4\n  max: 2\n", "gpus", 3),
        ("name: a\ncommand: x\nepoch: 3\n", "epoch", 3),
        ("command: x\nenv:\n  A: 1\nretries: -1\n", "retries", 4),
        ("command: x\n---\ncommand: y\nretries: many\n", "jobs[1].retries", 4),
        ("- command: x\n- command: y\n  gpus: -1\n", "jobs[1].gpus", 3),
        ("command: x\ngpus: [1\n\n\n", "", 2),
    ],
)
def test_what_is_wrong_is_said_with_its_line(server: Server, text: str, path: str, line: int) -> None:
    found = validated(server, text)
    assert not found["valid"]
    problem = found["problems"][0]
    assert problem["path"].startswith(path)
    assert problem["line"] == line
    assert problem["what"]


def test_a_right_file_is_told_where_it_fits_and_nothing_is_submitted(server: Server) -> None:
    found = validated(server, "name: a\ncommand: x\ngpus: {min: 1, max: 4}\n")
    assert found["valid"]
    limits = [{"node": "here", "at_once": 4, "gpus": [0, 1, 2, 3]}]
    assert found["jobs"] == [
        {"name": "a", "gpus": {"min": 1, "max": 4}, "why": "", "fits": True, "nodes": ["here"], "limits": limits},
    ]
    assert server.client.get("/v1/jobs").json()["jobs"] == []


def test_a_job_that_fits_nowhere_is_told_why(server: Server) -> None:
    found = validated(server, "command: x\ngpus: 9\n")
    assert found["valid"]
    assert not found["jobs"][0]["fits"]
    assert "4" in found["jobs"][0]["why"]


# -- speed, logs ------------------------------------------------------------------------------------------------------


def test_the_curve_comes_with_what_was_measured(server: Server) -> None:
    (job,) = server.submit("command: x\nname: a\nuses_library: true\ngpus: {min: 1, max: 4}\nepochs: 9")
    run = server.engine.start(job)
    server.engine.record(
        ev.EpochEnded(run=run, at_s=1100.0, epoch=1, epoch_s=60.0, step_s=1.0, gpus=1, nodes=1, gpu_type="gpu")
    )
    found = server.client.get(f"/v1/jobs/{job}/speed").json()
    assert [n for n, _ in found["curves"]["gpu"]] == [1, 2, 3, 4]
    assert found["points"][0]["gpus"] == 1
    assert found["points"][0]["epoch_s"] == 60.0
    assert found["source"] == "measured"


def test_a_log_can_be_followed_from_near_its_end(server: Server) -> None:
    (job,) = server.submit("command: x")
    run = server.engine.start(job)
    text = b"".join(b"line %06d\n" % number for number in range(20_000))
    server.engine.write(run, text)
    server.engine.end(run)
    with server.client.stream("GET", f"/v1/jobs/{job}/logs?follow=true&tail=24") as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("data:")]
    logs = [data for data in (json.loads(line[6:]) for line in lines) if "text" in data]
    assert "".join(data["text"] for data in logs) == "line 019998\nline 019999\n"
    assert logs[0]["offset"] == len(text) - 24


def test_usage_is_summed_by_user_and_by_team(server: Server) -> None:
    engine, began_s = server.engine, time.time() - 1800
    spec = JobSpec(name="a", command=("x",), user="ada", team="vision", gpus=GpuRequest(min=2, max=2))
    held = Allocation(parts=(Part(node="n1", gpus=(0, 1)),), gpu_type="A100")
    engine.record(
        ev.JobSubmitted(job=1, spec=spec, at_s=began_s),
        ev.RunPlanned(run=RunId(1, 1), allocation=held, at_s=began_s),
        ev.RunStarted(run=RunId(1, 1), at_s=began_s),
    )
    view = server.client.get("/v1/usage", params={"since": 1}).json()
    (ada,) = [one for one in view["users"] if one["name"] == "ada"]
    assert (ada["gpus"], ada["running"], ada["queued"], ada["jobs"]) == (2, 1, 0, 1)
    assert ada["gpu_hours"] == pytest.approx(1.0, abs=0.05)
    assert [(team["name"], team["gpus"], team["quota"]) for team in view["teams"]] == [("vision", 2, None)]
    engine.record(ev.RunEnded(run=RunId(1, 1), reason=ev.ExitReason.FINISHED, at_s=began_s + 3600))
    (ada,) = [one for one in server.client.get("/v1/usage?since=1").json()["users"] if one["name"] == "ada"]
    assert (ada["gpus"], ada["running"], ada["completed"]) == (0, 0, 1)
    assert ada["gpu_hours"] == pytest.approx(2.0)


def test_a_workload_is_simulated_and_what_cannot_be_says_why(server: Server) -> None:
    asked = {"workload": "generated", "policies": ["fifo", "srjf"], "generated": {"jobs": 5, "hours": 1, "seed": 2}}
    (found,) = server.client.post("/v1/simulate", json={**asked, "cluster": "1x4"}).json()
    assert [run["policy"] for run in found["runs"]] == ["fifo", "srjf"]
    assert all(run["figures"]["jobs"] == 5 and run["spans"] for run in found["runs"])
    for change, says in (
        ({"cluster": "four"}, "is not a group of nodes"),
        ({"cluster": "1000x8"}, "here at most 1,024"),
        ({"workload": "trace", "trace": {"name": "a.yaml", "content": "gpus: 1"}}, "command"),
        ({"workload": "trace"}, "send the file"),
        ({"workload": "queue", "cluster": "1x4"}, "leave out"),
    ):
        refused = server.client.post("/v1/simulate", json={**asked, **change})
        assert refused.status_code == 422, change
        assert says in refused.json()["detail"]
    assert server.client.post("/v1/simulate", json={**asked, "policies": ["no-such"]}).status_code == 404
