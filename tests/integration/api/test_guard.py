"""Who may call, and what must not get in."""

import contextlib
import hashlib
import http.client
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from integration.api.conftest import Server
from swell.api import bodies, connections
from swell.api.auth import run_token
from swell.core import events as ev
from swell.core.events import Batching
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.daemon.reports import RankStatus

TOKEN = "t" * 40


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/nodes", "/v1/events", "/v1/openapi.json", "/v1/jobs/1/logs", "/v1/live", "/x"]
)
@pytest.mark.parametrize("header", ["", "Bearer wrong", "Bearer", "Basic dDp0", "Bearer \xe9"])
def test_never_without_the_token(server: Server, path: str, header: str) -> None:
    answer = server.client.get(path, headers={b"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401
    assert "token" in answer.json()["detail"]


def test_never_with_the_token_of_another_run(server: Server) -> None:
    server.engine.record(ev.JobSubmitted(job=7, spec=JobSpec(name="x", command=("x",)), at_s=1.0))
    run = server.engine.start(7)
    headers = {"Authorization": f"Bearer {run_token(TOKEN, run)}"}
    assert server.client.post(f"/v1/runs/{run}/report", json={}, headers=headers).status_code == 200
    assert server.client.get(f"/v1/runs/{run}/stop", headers=headers).status_code == 200
    assert server.client.post("/v1/runs/7.2/report", json={}, headers=headers).status_code == 401
    assert server.client.get(f"/v1/runs/{run}", headers=headers).status_code == 401
    assert server.client.get("/v1/jobs", headers=headers).status_code == 401


RUN_ROUTES = [("POST", "report"), ("GET", "stop"), ("GET", "files"), ("POST", "lease")]


@pytest.mark.parametrize(("method", "route"), RUN_ROUTES)
def test_a_runs_token_ends_with_the_run(server: Server, method: str, route: str) -> None:
    engine = server.engine
    engine.record(ev.JobSubmitted(job=7, spec=JobSpec(name="x", command=("x",), files="a" * 64), at_s=1.0))
    run = engine.start(7)
    headers = {"Authorization": f"Bearer {run_token(TOKEN, run)}"}
    engine.end(run, ev.ExitReason.FINISHED, 0)
    before = engine.state.seq, len(engine.reports)
    answer = server.client.request(method, f"/v1/runs/{run}/{route}", json={}, headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (410, "Over")
    assert (engine.state.seq, len(engine.reports)) == before
    never = f"Bearer {run_token(TOKEN, RunId(7, 2))}"  # of a run that there has never been
    asked = server.client.request(method, f"/v1/runs/7.2/{route}", json={}, headers={"Authorization": never})
    assert asked.status_code == 410


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Host": "evil.example:80"}, {"Origin": "http://evil.example"}]
)
def test_never_through_a_page_of_somebody_else(server: Server, headers: dict[str, str]) -> None:
    assert server.client.get("/v1/health", headers=headers).status_code == 403


def test_through_a_proxy_of_any_name_a_token_beside_its_own_opens_and_nothing_else(server: Server) -> None:
    """As the API server of Kubernetes hands requests on: by its own name, without `Authorization`."""
    proxy = {"Host": "k8s.example:6443", "Authorization": ""}
    for token, status in ((TOKEN, 200), ("w" * 40, 401), ("x", 401)):
        beside = {"Swell-Authorization": f"Bearer {token}"}
        assert server.client.get("/v1/jobs", headers={**proxy, **beside}).status_code == status
    assert server.client.get("/v1/jobs", headers=proxy).status_code == 403


def test_localhost_is_this_machine_too(server: Server) -> None:
    assert server.client.get("/v1/jobs", headers={"Host": f"localhost:{server.port}"}).status_code == 200
    assert server.client.get("/v1/jobs", headers={"Host": f"[::1]:{server.port}"}).status_code == 200


def test_two_megabytes_are_refused_with_the_limit(server: Server) -> None:
    answer = server.client.post("/v1/jobs", content=b"x" * (2 << 20))
    assert answer.status_code == 413
    assert "1 MiB" in answer.json()["detail"]


def test_two_megabytes_in_pieces_are_refused_too(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    pieces = (b"x" * 65536 for _ in range(32))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connection.request("POST", "/v1/jobs", body=pieces, headers=headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize(
    ("content", "kind", "status", "says"),
    [
        (b"{", "application/json", 400, "not valid JSON"),
        (b"[]", "application/json", 400, "JSON object"),
        (b"3", "application/json", 400, "JSON object"),
        (b'{"command": "a\\u0000b"}', "application/json", 422, "NUL"),
        (b'{"comand": "x"}', "application/json", 422, "did you mean command?"),
        (b"[" * 5000, "application/json", 400, "not valid JSON"),
        (b"[" * 100_000, "application/yaml", 400, "levels"),
        (b"command: [a", "application/yaml", 400, "line 1"),
        (b'{"command": "x", "gpus": 100}', "application/json", 422, "lower gpus.min"),
        (b'{"command": "x", "name": "../../x"}', "application/json", 422, "a name has letters"),
        (b'{"command": "x", "name": "$(reboot)"}', "application/json", 422, "a name has letters"),
        (b"\xff", "application/json", 400, "not valid JSON"),
    ],
)
def test_bad_bodies(server: Server, content: bytes, kind: str, status: int, says: str) -> None:
    answer = server.client.post("/v1/jobs", content=content, headers={"content-type": kind})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert says in answer.json()["detail"]
    assert server.engine.state.jobs == {}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("PATCH", "/v1/jobs", 405),
        ("GET", "/v1/jobs/999", 404),
        ("GET", "/v1/jobs/nobody", 404),
        ("GET", "/v1/jobs/last", 404),
        ("GET", "/v1/jobs?limit=0", 422),
        ("GET", "/v1/jobs?state=bogus", 422),
        ("GET", "/v1/jobs?stat=running", 422),
        ("GET", "/v1/nodes?x=1", 422),
        ("GET", "/v1/jobs?after=999999999999999999999999999999", 422),
        ("GET", "/v1/jobs/999999999999999999999999999999", 404),
        ("GET", "/v1/runs/999999999999999999999999999999.1", 404),
        ("GET", "/v1/jobs/1/logs?offset=999999999999999999999999999999&attempt=1", 422),
        ("GET", "/v1/runs/1/stop", 404),
        ("GET", "/v1/runs/1.1/stop?rank=x", 400),
        ("GET", "/v1/runs/1.1/stop?wait_s=nan", 400),
        ("POST", "/v1/runs/1.1/report", 400),
    ],
)
def test_errors_are_problems_for_people(server: Server, method: str, path: str, status: int) -> None:
    answer = server.client.request(method, path)
    assert answer.status_code == status
    problem = answer.json()
    assert problem["status"] == status
    assert problem["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs/cancel", b'{"jobs": [true]}'),
        ("POST", "/v1/jobs/cancel", b'{"jobs": [1.5]}'),
        ("POST", "/v1/jobs/cancel", b'{"all": 1}'),
        ("POST", "/v1/jobs/cancel", b'{"all": "yes"}'),
        ("POST", "/v1/jobs/cancel", b'{"jobs": ["\\ud800"]}'),
        ("POST", "/v1/jobs/1/cancel", b'{"reson": "x"}'),
        ("POST", "/v1/jobs/1/priority", b'{"priority": true}'),
        ("POST", "/v1/nodes", b'{"name": "b", "gpus": true}'),
        ("POST", "/v1/nodes", b'{"name": "b", "gpus": "2"}'),
        ("POST", "/v1/nodes", b'{"name": "b", "cpus": true}'),
        ("POST", "/v1/nodes", b'{"name": "b", "memory": true}'),
        ("POST", "/v1/nodes/here/cordon", b'{"why": 1}'),
        ("PUT", "/v1/policy", b'{"name": "fifo", "options": {"a": NaN}}'),
        ("POST", "/v1/jobs", b'{"command": "x", "gpus": true}'),
        ("POST", "/v1/jobs", b'{"command": "x", "retries": true}'),
        ("POST", "/v1/jobs", b'{"command": "x", "epochs": true}'),
        ("POST", "/v1/jobs", b'{"command": "x", "depends_on": [true]}'),
        ("POST", "/v1/jobs", b'{"command": "x", "array": true}'),
        ("POST", "/v1/jobs", b'{"command": "x", "weight": true}'),
        ("POST", "/v1/jobs", b'{"command": "x", "time_limit": true}'),
        ("POST", "/v1/jobs", b'{"command": "x", "estimated_hours": true}'),
        ("POST", "/v1/jobs", b'{"command": "x", "deadline": true}'),
        ("POST", "/v1/jobs", b'{"command": "x", "gpus": {"utilisation": true}}'),
    ],
)
def test_nothing_is_taken_for_something_else(server: Server, method: str, path: str, body: Any) -> None:
    server.submit()
    before = server.engine.state.seq
    answer = server.client.request(method, path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert server.engine.state.seq == before


def test_a_bug_says_so_without_its_entrails(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.engine, "reasons", lambda job: 1 / 0)
    server.submit()
    answer = server.client.get("/v1/jobs")
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["detail"]


def test_reports_arrive_typed(server: Server) -> None:
    body = {
        "rank": 1,
        "world_size": 4,
        "position": [3, 17],
        "ack": [4, 0],
        "began": {"epoch": 3, "epochs": 10},
        "epochs": [
            {"epoch": 3, "epoch_s": 1.5, "metrics": {"loss": 0.5}},
            {"epoch": 3, "count": 0, "batching": {"initial": 32, "largest": 512, "local": 16, "of_later": 1}},
        ],
        "series": {"loss": [[1.0, 0.5]]},
    }
    answer = server.client.post("/v1/runs/7.2/report", json=body)
    assert answer.json() == {"stop": {"at": [4, 0], "agreed": False}, "poll_s": 0.5}
    run, report = server.engine.reports[-1]
    assert (run, report.position, report.ack, report.began.epochs) == (RunId(7, 2), (3, 17), (4, 0), 10)
    assert report.epochs[0].event(run, 5.0).metrics == {"loss": 0.5}
    assert report.epochs[1].event(run, 5.0).batching == Batching(initial=32, largest=512, local=16)
    assert report.series == {"loss": ((1.0, 0.5),)}


def test_the_stop_poll_arrives_typed(server: Server) -> None:
    path = "/v1/runs/7.2/stop?rank=1&epoch=3&step=5&ack_epoch=4&ack_step=0&wait_s=2.5"
    assert server.client.get(path).json() == {"stop": None, "poll_s": 1.0}
    assert server.engine.reports[-1] == (RunId(7, 2), RankStatus(rank=1, position=(3, 5), ack=(4, 0)), 2.5)


# -- requests that are none -------------------------------------------------------------------------------------------


def said(server: Server, *lines: str, body: bytes = b"") -> tuple[int, bytes]:
    """The status of a request as it is written here, and whether the daemon hung up afterwards."""
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head + body)
        answer = connection.recv(65536)
    return int(answer.split()[1]), answer


AUTH = f"Authorization: Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["Host: localhost", "Host: evil.example"], 400),
        (["Host: evil.example", "Host: localhost"], 400),
        (["Host: localhost", "Host: localhost"], 400),
        ([], 400),
        (["Host:"], 400),
        (["Host: localhost:80@evil.example"], 400),
        (["Host: [::1"], 400),
        (["Host: localhost", "Origin: http://["], 403),
        (["Host: localhost", "Origin: null"], 403),
        (["Host: localhost", "Origin: http://localhost", "Origin: http://evil.example"], 400),
        (["Host: localhost", "Authorization: Bearer wrong"], 400),
        (["Host: LOCALHOST:1", "Origin: http://LOCALHOST:1"], 200),
    ],
)
def test_hosts_and_origins_that_are_none(server: Server, lines: list[str], status: int) -> None:
    assert said(server, "GET /v1/jobs HTTP/1.1", AUTH, *lines)[0] == status


# -- wrong tokens -----------------------------------------------------------------------------------------------------


def test_wrong_tokens_are_soon_not_listened_to_and_the_right_one_is(server: Server) -> None:
    answers = [server.client.get("/v1/jobs", headers={"Authorization": f"Bearer wrong-{i}"}) for i in range(40)]
    assert {a.status_code for a in answers[:20]} == {401}
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert "in 1 s" in answers[-1].json()["detail"]
    assert server.client.get("/v1/jobs").status_code == 200
    assert server.client.get("/v1/jobs", headers={"Authorization": ""}).status_code == 401


def test_wrong_codes_of_the_dashboard_count_as_wrong_tokens(server: Server) -> None:
    for i in range(60):  # more than the limit and what a slow machine gives back meanwhile
        assert server.client.post("/v1/ui/sessions", json={"code": f"wrong-{i}"}).status_code == 401
    assert server.client.get("/v1/jobs", headers={"Authorization": "Bearer wrong"}).status_code == 429


# -- slow clients -----------------------------------------------------------------------------------------------------


def closed(connection: socket.socket, within_s: float = 5.0) -> bool:
    connection.settimeout(within_s)
    return connection.recv(65536) == b""


@pytest.mark.parametrize("sent", [b"", b"GET /v1/jobs HTTP/1.1\r\nHost: local", b"\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(sent)
        assert closed(connection)


def test_a_byte_now_and_then_does_not_help(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        sent = 0
        with contextlib.suppress(OSError):
            for sent in range(200):  # noqa: B007 - how far it came is what is asked
                connection.sendall(b"\r\n")
                time.sleep(0.05)
        assert sent < 100


def test_nor_after_an_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        connection.request("GET", "/v1/health")
        assert connection.getresponse().read()
        connection.sock.sendall(b"GET")
        assert closed(connection.sock)


def test_a_head_without_end_is_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(OSError):
            for _ in range(200):
                connection.sendall(b"X: " + b"x" * 1000 + b"\r\n")
        with contextlib.suppress(OSError):
            assert connection.recv(65536).startswith(b"HTTP/1.1 400")


def test_the_rest_of_a_body_that_was_refused_is_not_taken_for_a_head(server: Server) -> None:
    size = 2_000_000
    lines = ("POST /v1/jobs HTTP/1.1", "Host: localhost", AUTH, f"Content-Length: {size}", "", "")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall("\r\n".join(lines).encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
        for _ in range(size // 1000):
            connection.sendall(b"x" * 1000)
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b"HTTP/1.1 " not in received:
            received += connection.recv(65536)
        assert b"HTTP/1.1 200 " in received


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/cancel", "/v1/what-if"])
def test_a_body_that_does_not_come_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.3)
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", AUTH, "Content-Length: 100")
    status, answer = said(server, *lines, body=b"{")
    assert status == 408
    assert b"send it again" in answer


def test_an_upload_may_take_as_long_as_its_bytes_come(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.3)
    monkeypatch.setattr(bodies, "SLOWEST", 1000)
    content = b"x" * 5000

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(content), 500):
            time.sleep(0.1)
            yield content[start : start + 500]

    answer = server.client.put(f"/v1/files/{hashlib.sha256(content).hexdigest()}", content=pieces())
    assert answer.status_code == 400  # it came, and is no tar


def test_a_stream_is_not_a_slow_body(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.2)
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    with server.client.stream("GET", "/v1/events?after=0") as answer:
        time.sleep(0.6)
        server.submit()
        assert any("JobSubmitted" in line or "submitted" in line.lower() for line in answer.iter_lines())
