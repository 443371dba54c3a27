"""Spans for OpenTelemetry: requests to the API, passes, launches. Made by `serve` where somebody receives them; else
this module is not imported. The SDK reads its own variables (OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS…).

It only listens: what the daemon decides and answers does not depend on it. A receiver that does not answer costs spans.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swell import __version__
from swell.core import events as ev
from swell.core.events import Event
from swell.core.ids import RunId
from swell.daemon.timing import PassTimes

CLOSE_S = 3.0
UNFAILED = (ev.ExitReason.FINISHED, ev.ExitReason.STOPPED)


class Tracing:
    """`endpoint`: the receiver's address without a path; empty: as its environment variables say."""

    def __init__(self, endpoint: str, cluster: str) -> None:
        names = {"service.name": "swell", "service.version": __version__, "service.instance.id": cluster}
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
        self._provider = TracerProvider(resource=Resource.create(names), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self._provider.get_tracer("swell", __version__)
        self._launches: dict[RunId, Span] = {}

    def around(self, app: ASGIApp) -> ASGIApp:
        return Traced(app, self.tracer)

    def close(self) -> None:
        """Send what is left. A receiver that does not answer holds the daemon up no longer than this."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(CLOSE_S)

    def passed(self, times: PassTimes) -> None:
        ended_ns = time.time_ns()
        attributes: dict[str, AttributeValue] = {
            "swell.policy": times.policy,
            "swell.policy_s": times.policy_s,
            "swell.placement_s": times.placement_s,
        }
        began_ns = ended_ns - int(times.whole_s * 1e9)
        self.tracer.start_span("pass", attributes=attributes, start_time=began_ns).end(ended_ns)

    def happened(self, events: Sequence[Event]) -> None:
        """A launch lasts from the decision, which is on disk, until all workers are up or the run has ended without."""
        for event in events:
            match event:
                case ev.RunPlanned():
                    self._launches[event.run] = self._launch(event)
                case ev.RunStarted() if event.run in self._launches:
                    self._launches.pop(event.run).end()
                case ev.RunEnded() if event.run in self._launches:
                    span = self._launches.pop(event.run)
                    if event.reason not in UNFAILED:
                        span.set_status(StatusCode.ERROR, f"{event.reason}: {event.message}")
                    span.end()

    def _launch(self, event: ev.RunPlanned) -> Span:
        attributes: dict[str, AttributeValue] = {
            "swell.job": event.run.job,
            "swell.attempt": event.run.attempt,
            "swell.nodes": list(event.allocation.nodes),
            "swell.gpus": event.allocation.gpus,
        }
        return self.tracer.start_span("launch", attributes=attributes)


class Traced:
    """Around the whole application, so that refused requests count too. Named by route: neither the path's ids nor the
    query, which may hold a code, leave the daemon. The span of a stream ends where its answer begins."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        span = self._tracer.start_span(scope["method"], context=extract(_headers(scope)), kind=SpanKind.SERVER)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answered(span, scope, message)
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except BaseException as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            span.end()

    def _answered(self, span: Span, scope: Scope, message: Message) -> None:
        route = route_of(scope)
        span.update_name(f"{scope['method']} {route}" if route else scope["method"])
        attributes = {"http.request.method": scope["method"], "http.response.status_code": message["status"]}
        span.set_attributes({**attributes, **({"http.route": route} if route else {})})
        if message["status"] >= 500:
            span.set_status(StatusCode.ERROR)
        if any(name.lower() == b"content-type" and b"event-stream" in value for name, value in message["headers"]):
            span.end()


def route_of(scope: Scope) -> str:
    """`/v1/jobs/{job}`; empty: the request came to no route, and its path may be anything."""
    return getattr(scope.get("route"), "path", "")


def _headers(scope: Scope) -> dict[str, Any]:
    """What a caller with spans of its own sends along."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
