"""Client of the API server over HTTP, with plain JSON values. lightkube reads server and credentials from a kubeconfig.

Every call ends within its time-out in one of three ways: a value, `Refusal` (the server refused) or `Unreachable` (no
answer, or a temporary error: too many requests, an error of the server, expired credentials).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from swell.core.errors import SwellError
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.executors.transport import Unreachable

if TYPE_CHECKING:
    import httpx2

ANSWER_S, WATCH_SILENT_S = 15.0, 90.0
"""Time-outs of a call, and of a stream without data."""
WATCH_S = 60
"""The server ends a watch after this, because it sends no bookmark for a kind of object without changes."""
SPARE_S = 0.2
MERGE_PATCH = "application/merge-patch+json"
_NO_VERDICT = frozenset({401, 408, 429, 500, 502, 503, 504})


class KubernetesError(SwellError):
    """The cluster cannot be used as it is configured; the message says what to do."""


class Refusal(OSError):
    """The server refused the request."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return self.message


class Expired(Refusal):
    """The version from which a watch should continue is too old: list everything again."""


def namespaced(namespace: str, kind: str, name: str = "", group: str = "") -> str:
    """`group`: with its version, as in "kubeflow.org/v2beta1"; unset: the core of Kubernetes."""
    root = f"/apis/{group}" if group else "/api/v1"
    return f"{root}/namespaces/{namespace}/{kind}" + (f"/{name}" if name else "")


class Api:
    """`open_http` makes a client with connections of its own, again after each `close`. `per_s`: maximum rate of
    requests, after a burst of twice as many."""

    def __init__(self, open_http: Callable[[], httpx2.AsyncClient], namespace: str, per_s: float) -> None:
        self._open_http = open_http
        self._opened: httpx2.AsyncClient | None = None
        self.namespace = namespace
        self._per_s = per_s
        self._free = 2 * per_s
        self._filled_s = 0.0
        self.requests = 0

    async def get(self, path: str, **params: object) -> Any:
        return await self._call("GET", path, params=params)

    async def create(self, path: str, body: Mapping[str, Any], **params: object) -> Any:
        return await self._call("POST", path, body=body, params=params)

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._call("PATCH", path, body=body, kind=MERGE_PATCH)

    async def delete(self, path: str, grace_s: int | None = None, uid: str = "") -> None:
        """Delete an object; no error if it does not exist. `uid`: only the object with this uid, not another one of
        that name."""
        body: dict[str, Any] = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", path, body=body)
        except Refusal as refusal:
            if refusal.code not in (404, 409):
                raise

    async def watch(self, path: str, version: str) -> AsyncIterator[Mapping[str, Any]]:
        """Events after `version`, until the server ends the watch. Raises Expired if the version is too old."""
        params = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        params["timeoutSeconds"] = str(WATCH_S)
        async with self.stream(path, params) as chunks:
            async for line in _lines(chunks):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _refusal(event["object"].get("code", 0), event["object"])
                yield event

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, spare: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """`spare`: low priority; it waits until no other request waits, as for logs of running pods."""
        import httpx2

        await self._pace(spare=spare)
        limits = httpx2.Timeout(ANSWER_S, read=WATCH_SILENT_S)
        try:
            async with self._http.stream("GET", path, params=dict(params), timeout=limits) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise _answered(answer)
                yield answer.aiter_raw()
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise Unreachable(_said(error)) from None

    async def _call(
        self, method: str, path: str, *, body: object = None, params: Mapping[str, object] | None = None, kind: str = ""
    ) -> Any:
        import httpx2

        await self._pace()
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind or "application/json"} if content is not None else {}
        given = {key: str(value) for key, value in (params or {}).items()}
        try:
            answer = await self._http.request(
                method, path, params=given, content=content, headers=headers, timeout=ANSWER_S
            )
        except httpx2.HTTPError as error:
            raise Unreachable(_said(error)) from None
        if answer.is_error:
            raise _answered(answer)
        return answer.json() if answer.headers.get("Content-Type", "").startswith("application/json") else answer.text

    async def _pace(self, *, spare: bool = False) -> None:
        """Wait for a slot of the rate limit. `spare`: only when no other request waits."""
        self._fill()
        while spare and self._free < self._per_s:
            await asyncio.sleep(SPARE_S)
            self._fill()
        self._free -= 1.0
        self.requests += 1
        if self._free < 0:
            await asyncio.sleep(-self._free / self._per_s)

    def _fill(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._free = min(2 * self._per_s, self._free + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s

    @property
    def _http(self) -> httpx2.AsyncClient:
        if self._opened is None:
            self._opened = self._open_http()
        return self._opened

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _said(error: Exception) -> str:
    return f"the API server of the cluster does not answer ({str(error) or type(error).__name__})"


def _answered(answer: httpx2.Response) -> OSError:
    try:
        status = answer.json()
    except ValueError:
        status = {"message": answer.text[:300]}
    return _refusal(answer.status_code, status if isinstance(status, dict) else {})


def _refusal(code: int, status: Mapping[str, Any]) -> OSError:
    reason, message = str(status.get("reason", "")), str(status.get("message", f"status {code}"))
    if code == 410:
        return Expired(code, reason, message)
    return Unreachable(f"{message} ({code})") if code in _NO_VERDICT else Refusal(code, reason, message)


def connect(settings: KubernetesSettings) -> Api:
    """Raises KubernetesError if there is no such cluster in the configuration. Sends no request yet."""
    try:
        import httpx2
        from lightkube.config import client_adapter
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError
    except ImportError:
        raise KubernetesError("nodes of a Kubernetes cluster need lightkube: pip install 'swell[kubernetes]'") from None
    try:
        found = KubeConfig.from_file(settings.kubeconfig) if settings.kubeconfig else KubeConfig.from_env()
        config = found.get(settings.context or None)
    except (ConfigError, OSError) as error:
        raise KubernetesError(
            f"no Kubernetes cluster is configured here ({error}); name a kubeconfig and a context, as "
            "`swell up --kubeconfig FILE --kubernetes-context NAME`"
        ) from None
    assert config is not None
    parameters = client_adapter.ConnectionParams().httpx_params(config)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)  # each log that is followed has its own
    return Api(
        lambda: httpx2.AsyncClient(**parameters, limits=limits),
        settings.namespace or config.namespace or "default",
        settings.requests_per_s,
    )
