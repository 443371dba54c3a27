"""Server-sent events: nothing missed, nothing twice, and never an end before the end."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from integration.api.conftest import Server
from swell.core import events as ev
from swell.core.ids import RunId

Message = tuple[str | None, Any, str]
"""Its event, its data, its id."""


def messages(answer: httpx.Response) -> Iterator[Message]:
    """Parsed messages of a stream, as they come."""
    current: dict[str, str] = {}
    for line in answer.iter_lines():
        if not line and current:
            yield current.get("event"), json.loads(current["data"]), current.get("id", "")
            current = {}
        elif line and not line.startswith(":"):
            key, _, value = line.partition(": ")
            current[key] = value


def collect(
    server: Server,
    path: str,
    headers: dict[str, str] | None = None,
    until: Callable[[Message], bool] | None = None,
    meanwhile: threading.Thread | None = None,
) -> list[Message]:
    """All messages; `meanwhile`, a thread, begins when the first has come."""
    with server.client.stream("GET", path, headers=headers or {}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        found: list[Message] = []
        for item in messages(answer):
            if not found and meanwhile is not None:
                meanwhile.start()
            found.append(item)
            if until is not None and until(item):
                break
        return found


def later(seconds: float, *actions: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        for action in actions:
            time.sleep(seconds)
            action()

    return threading.Thread(target=run)


def test_events_in_order_and_resumed(server: Server) -> None:
    server.submit("command: x\narray: 3")
    all_of_them = collect(server, "/v1/events?follow=false")
    numbers = [int(ident) for _, _, ident in all_of_them]
    assert numbers == list(range(1, server.engine.state.seq + 1))
    assert collect(server, "/v1/events?follow=false&after=3") == all_of_them[3:]
    assert collect(server, "/v1/events?follow=false", {"Last-Event-ID": "4"}) == all_of_them[4:]
    assert collect(server, "/v1/events?follow=false&last=1") == all_of_them[-1:]
    assert [d["job"] for _, d, _ in collect(server, "/v1/events?follow=false&job=2")] == [2]
    assert collect(server, f"/v1/events?follow=false&after={numbers[-1]}") == []


def test_events_go_on_live(server: Server) -> None:
    thread = later(0.05, lambda: server.engine.record(ev.NodeRemoved(node="here", at_s=1.0)))
    server.submit()
    after = server.engine.state.seq - 1
    found = collect(server, f"/v1/events?after={after}", until=lambda m: m[0] == "NodeRemoved", meanwhile=thread)
    thread.join()
    assert found[-1][1]["node"] == "here"


def test_a_log_is_followed_over_attempts_to_the_end(server: Server) -> None:
    engine = server.engine
    (job,) = server.submit("command: x\nuses_library: true")
    runs: list[RunId] = []

    def last() -> None:
        engine.write(runs[1], b"last line without newline")
        engine.end(runs[1])

    thread = later(
        0.05,
        lambda: runs.append(engine.start(job)),
        lambda: engine.write(runs[0], b"one\n"),
        lambda: engine.stop(runs[0]),
        lambda: runs.append(engine.start(job)),
        lambda: engine.write(runs[1], b"two\n"),
        last,
    )
    found = collect(server, f"/v1/jobs/{job}/logs?follow=true", meanwhile=thread)
    thread.join()
    assert "".join(d["text"] for kind, d, _ in found if kind == "log") == "one\ntwo\nlast line without newline"
    assert next(d["state"] for kind, d, _ in found if kind == "state") == "queued"
    kind, end, _ = found[-1]
    assert (kind, end["state"], end["exit_code"]) == ("end", "completed", 0)


def test_a_log_is_resumed_where_the_reader_left_off(server: Server) -> None:
    (job,) = server.submit()
    run = server.engine.start(job)
    server.engine.write(run, b"0123456789")
    first = collect(server, f"/v1/jobs/{job}/logs?follow=true", until=lambda m: m[0] == "log")[-1]
    server.engine.write(run, b"abc")
    server.engine.end(run, ev.ExitReason.USER_ERROR, 7)
    rest = collect(server, f"/v1/jobs/{job}/logs?follow=true", {"Last-Event-ID": first[2]})
    assert "".join(d["text"] for kind, d, _ in rest if kind == "log") == "abc"
    assert (rest[-1][1]["state"], rest[-1][1]["exit_code"]) == ("failed", 7)


def test_characters_are_never_cut_in_two(server: Server) -> None:
    (job,) = server.submit()
    run = server.engine.start(job)
    text = "é€😀" * 20_000
    data = text.encode()
    server.engine.write(run, data[:100_001])
    thread = later(0.05, lambda: server.engine.write(run, data[100_001:]), lambda: server.engine.end(run))
    found = collect(server, f"/v1/jobs/{job}/logs?follow=true", meanwhile=thread)
    thread.join()
    assert "".join(d["text"] for kind, d, _ in found if kind == "log") == text


def test_all_processes_of_each_attempt_are_followed(server: Server) -> None:
    engine = server.engine
    (job,) = server.submit("command: x\ngpus: 1-3\nlauncher: per-gpu\nuses_library: true")
    first = engine.start(job, gpus=(0,))
    engine.write(first, b"a0\n")
    engine.stop(first)
    second = engine.start(job, gpus=(0, 1, 2))
    for rank in range(3):
        engine.write(second, f"b{rank}\n".encode(), rank)
    path = f"/v1/jobs/{job}/logs?follow=true&rank=all"
    begun = collect(server, path, until=lambda m: m[1].get("rank") == 1)
    engine.write(second, b"c2\n", 2)
    engine.end(second)
    rest = collect(server, path, {"Last-Event-ID": begun[-1][2]})
    said = [(d["run"], d["rank"], d["text"]) for kind, d, _ in begun + rest if kind == "log"]
    assert said == [
        (f"{job}.1", 0, "a0\n"),
        (f"{job}.2", 0, "b0\n"),
        (f"{job}.2", 1, "b1\n"),
        (f"{job}.2", 2, "b2\nc2\n"),
    ]
    assert rest[-1][0] == "end"


def test_half_a_character_at_the_very_end_does_not_hang(server: Server) -> None:
    (job,) = server.submit()
    run = server.engine.start(job)
    server.engine.write(run, b"ok\xe2\x82")
    server.engine.end(run)
    found = collect(server, f"/v1/jobs/{job}/logs?follow=true")
    assert "".join(d["text"] for kind, d, _ in found if kind == "log") == "ok�"


def test_raw_bytes_as_they_are(server: Server) -> None:
    (job,) = server.submit("command: x\nuses_library: true")
    data = bytes(range(256)) * 1000
    first = server.engine.start(job)
    server.engine.write(first, data)
    server.engine.stop(first)
    second = server.engine.start(job)
    server.engine.write(second, b"second")
    get = server.client.get
    assert get(f"/v1/jobs/{job}/logs").content == data + b"second"
    assert get(f"/v1/jobs/{job}/logs?attempt=1").content == data
    assert get(f"/v1/jobs/{job}/logs?attempt=1&offset=100000&limit=70000").content == data[100_000:170_000]
    end = get(f"/v1/jobs/{job}/logs?attempt=1&tail=1000")
    assert end.content == data[-1000:]
    assert end.headers["Swell-Log-Offset"] == str(len(data) - 1000), "so that what is before it can be asked for"
    assert get(f"/v1/jobs/{job}/logs?offset=5").status_code == 422
    assert get(f"/v1/jobs/{job}/logs?rank=3").status_code == 404
    assert "rank 0 only" in get(f"/v1/jobs/{job}/logs?rank=3&attempt=1").text


def test_what_was_written_since_begins_in_the_attempt_that_ran_then(server: Server) -> None:
    (job,) = server.submit("command: x\nuses_library: true")
    first = server.engine.start(job)
    server.engine.write(first, b"old\nnew 1\n")
    server.engine.stop(first)
    second = server.engine.start(job)
    server.engine.write(second, b"old\nnew 2\n")
    get = server.client.get
    ended_s = server.engine.all_runs[first].ended_s
    assert ended_s is not None
    assert get(f"/v1/jobs/{job}/logs?since={ended_s}").content == b"new 1\nold\nnew 2\n"
    assert get(f"/v1/jobs/{job}/logs?since={ended_s + 1}").content == b"new 2\n"
    assert get(f"/v1/jobs/{job}/logs?attempt=1&since={ended_s + 1}").content == b""
    assert get(f"/v1/jobs/{job}/logs?since={ended_s}&offset=3&attempt=1").status_code == 422


def test_a_job_removed_while_it_is_followed(server: Server) -> None:
    (job,) = server.submit()
    server.engine.end(server.engine.start(job))
    (other,) = server.submit()
    thread = later(0.05, lambda: server.engine.record(ev.JobCancelled(job=other, at_s=1.0)))
    assert collect(server, f"/v1/jobs/{other}/logs?follow=true", meanwhile=thread)[-1][1]["state"] == "cancelled"
    thread.join()
    (gone,) = server.submit()
    forget = later(0.05, lambda: server.engine.state.jobs.pop(gone))
    assert collect(server, f"/v1/jobs/{gone}/logs?follow=true", meanwhile=forget)[-1][1]["state"] == "removed"
    forget.join()
