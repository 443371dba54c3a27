"""Spans reach a real receiver of OTLP over HTTP and tell what the daemon did; without a receiver they cost nothing."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from harness import ROOT, Daemon, daemon, eventually
from swell.api.port import Engine
from swell.config import Config, ConfigError
from swell.core import events as ev
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.resources import Allocation, Part
from swell.serve import OTLP_VARIABLES, _traced
from swell.tracing import Tracing


class Receiver(ThreadingHTTPServer):
    """Takes spans at /v1/traces, as a collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[ExportTraceServiceRequest] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self, name: str = "") -> list[Span]:
        found = [
            s for request in self.taken for of in request.resource_spans for part in of.scope_spans for s in part.spans
        ]
        return [span for span in found if not name or span.name == name]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces"
        self.server.taken.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.shutdown()
    made.server_close()


def attributes(span: Span) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in span.attributes}


def run_one_job(served: Daemon) -> int:
    (job,) = served.submit(command="true")
    eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "completed", 60, what="the job has ended")
    return job


def test_requests_passes_and_launches_are_sent(tmp_path: Path, receiver: Receiver) -> None:
    with daemon(tmp_path / "home", env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}) as served:
        job = run_one_job(served)
        assert served.request("GET", "/v1/nodes?secret=1", headers={"Authorization": "Bearer wrong"})[0] == 401
        served.stop()
    (resource,) = {request.resource_spans[0].resource.SerializeToString() for request in receiver.taken}
    assert b"service.name" in resource
    (submitted,) = receiver.spans("POST /v1/jobs")
    assert attributes(submitted)["http.response.status_code"] == 201
    asked = attributes(receiver.spans("GET /v1/jobs/{job}")[0])
    assert asked["http.route"] == "/v1/jobs/{job}"
    refused = [span for span in receiver.spans("GET") if attributes(span)["http.response.status_code"] == 401]
    assert len(refused) == 1
    assert not any(b"secret" in request.SerializeToString() for request in receiver.taken)
    (launch,) = receiver.spans("launch")
    assert attributes(launch)["swell.job"] == job
    assert launch.status.code == Status.STATUS_CODE_UNSET
    passes = receiver.spans("pass")
    assert all(attributes(span)["swell.policy"] == "swell" for span in passes)
    deciding = [span for span in passes if span.start_time_unix_nano <= launch.start_time_unix_nano]
    assert any(span.end_time_unix_nano >= launch.start_time_unix_nano for span in deciding), "a pass decided on it"


def test_a_caller_that_has_spans_is_the_parent(tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(f"otlp_endpoint: {receiver.url}/\n")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with daemon(tmp_path / "home") as served:
        served.request("GET", "/v1/nodes", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
        served.stop()
    (span,) = receiver.spans("GET /v1/nodes")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace, "00f067aa0ba902b7")


def test_a_receiver_that_is_down_disturbs_nothing(tmp_path: Path) -> None:
    with daemon(tmp_path / "home", env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}) as served:
        run_one_job(served)
        assert served.stop() == 0


def test_a_run_that_fails_before_it_is_up_is_an_error(receiver: Receiver) -> None:
    run = RunId(job=7, attempt=2)
    allocation = Allocation(parts=(Part(node="a", gpus=(0, 1), cpus=1, memory_mib=0),))
    tracing = Tracing(receiver.url, "cluster")
    tracing.happened([ev.RunPlanned(run=run, allocation=allocation, at_s=1.0)])
    tracing.happened([ev.RunEnded(run=run, reason=ExitReason.START_FAILED, at_s=2.0, message="no such program")])
    tracing.happened([ev.RunStarted(run=RunId(job=8, attempt=1), at_s=3.0)])  # planned before this daemon began
    tracing.close()
    (launch,) = receiver.spans()
    assert (launch.name, launch.status.code) == ("launch", Status.STATUS_CODE_ERROR)
    assert "no such program" in launch.status.message
    assert attributes(launch)["swell.gpus"] == 2
    assert not tracing._launches


OFF = """
import sys
from contextlib import AsyncExitStack
from swell.config import Config
from swell.serve import _traced
app = object()
assert _traced(Config(), None, app, AsyncExitStack()) is app
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
"""


def test_without_a_receiver_no_sdk_is_imported_and_the_application_is_as_it_was() -> None:
    env = {"PYTHONPATH": str(ROOT / "src"), "HOME": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", OFF], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "swell.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", None)
    engine, app, closing = cast(Engine, None), cast(Any, object()), AsyncExitStack()
    with pytest.raises(ConfigError, match=r"pip install 'swell\[otel\]'"):
        _traced(Config(home=tmp_path, otlp_endpoint="http://127.0.0.1:4318"), cast(Any, engine), app, closing)
    monkeypatch.setenv(OTLP_VARIABLES[0], "http://127.0.0.1:4318")
    assert _traced(Config(home=tmp_path), cast(Any, engine), app, closing) is app, (
        "a variable that others set is no error"
    )
