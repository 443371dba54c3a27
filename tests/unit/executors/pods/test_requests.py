"""How often the API server is asked: at most as often as is set, and logs only with what is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2

from swell.executors.kubernetes.api import Api, connect
from swell.executors.kubernetes.settings import KubernetesSettings

PER_S = 200.0


def paced(*, spare: int, first: int) -> list[str]:
    """In which order `spare` requests that can wait, and then `first` that cannot, are sent."""
    sent: list[str] = []

    async def send(api: Api, name: str, *, waits: bool) -> None:
        await api._pace(spare=waits)
        sent.append(name)

    async def play() -> None:
        api = Api(lambda: None, "n", PER_S)  # type: ignore[arg-type,return-value]
        api._free = 0.0
        api._filled_s = asyncio.get_running_loop().time()
        logs = [asyncio.create_task(send(api, "log", waits=True)) for _ in range(spare)]
        await asyncio.sleep(0)
        await asyncio.gather(*(send(api, "order", waits=False) for _ in range(first)))
        await asyncio.gather(*logs)

    asyncio.run(play())
    return sent


def test_logs_wait_until_nothing_else_wants_to_be_sent() -> None:
    assert paced(spare=50, first=20) == ["order"] * 20 + ["log"] * 50


def test_a_watch_on_which_nothing_happens_ends_before_it_counts_as_unanswered() -> None:
    """Found on a real cluster: of quotas that nobody changes no bookmark comes either, and every 90 s the log said that
    the API server did not answer."""
    asked: list[httpx2.Request] = []

    async def nothing() -> AsyncIterator[bytes]:
        return
        yield

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, content=nothing())

    async def play() -> None:
        api = Api(lambda: httpx2.AsyncClient(base_url="http://x", transport=httpx2.MockTransport(answer)), "n", PER_S)
        assert [event async for event in api.watch("/api/v1/pods", "7")] == []

    asyncio.run(play())
    (request,) = asked
    silent_s = request.extensions["timeout"]["read"]
    assert 0 < int(request.url.params["timeoutSeconds"]) < silent_s


def test_many_logs_can_be_followed_at_once(tmp_path: object) -> None:
    """Found with 1,000 pods: each followed log has a connection, and a pool of 100 made every other call wait."""
    from pathlib import Path

    path = Path(str(tmp_path)) / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: a, user: {token: t}}]\n",
        encoding="ascii",
    )
    http = connect(KubernetesSettings(kubeconfig=str(path)))._http
    pool = http._transport._pool  # type: ignore[attr-defined]
    assert pool._max_connections > 10_000
