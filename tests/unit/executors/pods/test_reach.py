"""The pod that tries at the daemon's start whether pods reach it. The tests play its kubelet; its script runs here."""

from __future__ import annotations

import asyncio
import http.server
import subprocess
import threading
from typing import Any

import pytest

from swell.executors.kubernetes import reach as module
from swell.executors.kubernetes.reach import Reach, judged, probe_pod
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.ports import Verdict
from unit.executors.pods.fake_cluster import FakeCluster
from unit.executors.pods.pod_values import CLUSTER

URL = "http://10.0.0.5:8700"
POD = f"/api/v1/namespaces/default/pods/swell-{CLUSTER[:8]}-reach"
NOT_REACHED = {"terminated": {"exitCode": 7, "message": "Connection refused\n"}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_S", "AGAIN_S"):
        monkeypatch.setattr(module, name, 0.0)


def probing(cluster: FakeCluster, image: str = "probe:1") -> Reach:
    return Reach(cluster, CLUSTER, URL, KubernetesSettings(probe_image=image))  # type: ignore[arg-type]


async def until(cluster: FakeCluster, *, there: bool) -> None:
    async with asyncio.timeout(5.0):
        while (POD in cluster.objects) is not there:
            await asyncio.sleep(0)


def test_an_address_that_pods_do_not_reach_is_reported_until_they_do(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        found = probing(cluster)
        task = asyncio.create_task(found.run())
        await until(cluster, there=True)
        cluster.report(POD, "Failed", NOT_REACHED)
        await until(cluster, there=False)
        await until(cluster, there=True)
        (check,) = found.findings.values()
        assert check.verdict is Verdict.FAILED
        assert f"do not reach the daemon at {URL} (Connection refused)" in check.words
        assert "--advertise" in check.fix
        cluster.report(POD, "Succeeded", {"terminated": {"exitCode": 0}})
        await task
        assert not found.findings
        assert POD not in cluster.objects, "nothing is left"

    asyncio.run(scenario())
    assert "do not reach the daemon" in caplog.text


def test_no_image_no_probe() -> None:
    cluster = FakeCluster()
    asyncio.run(probing(cluster, image="").run())
    assert not cluster.calls


WAITING = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}
UNPLACED = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]}


@pytest.mark.parametrize(("status", "why"), [(WAITING, "no such image"), (UNPLACED, "no room"), ({}, "no reason")])
def test_a_pod_that_did_not_run_proves_nothing(status: dict[str, Any], why: str) -> None:
    check = judged(status, URL)
    assert check.verdict is Verdict.NOTE
    assert why in check.words
    assert "probe_image" in check.fix


def run(url: str) -> subprocess.CompletedProcess[str]:
    (container,) = probe_pod(CLUSTER, "default", "probe:1", url)["spec"]["containers"]
    words = [*container["command"][:4], "1", "0", container["command"][6]]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)


def test_its_script_tells_an_answer_from_none() -> None:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/v1/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert run(f"http://127.0.0.1:{server.server_port}").returncode == 0
        finally:
            server.shutdown()
            thread.join()
        port = server.server_port
    told = run(f"http://127.0.0.1:{port}")
    assert told.returncode == module.NOT_REACHED
    assert "refused" in told.stdout
    assert "\n" not in told.stdout.strip(), "the last line alone"


def test_a_pod_that_an_earlier_daemon_left_is_deleted_before_another_is_made() -> None:
    """It may have tried another address."""

    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.put(POD, {"metadata": {"name": POD.rsplit("/", 1)[1], "uid": "of an earlier daemon"}})
        task = asyncio.create_task(probing(cluster).run())
        async with asyncio.timeout(5.0):
            while cluster.objects.get(POD, {}).get("metadata", {}).get("uid") in (None, "of an earlier daemon"):
                await asyncio.sleep(0)
        cluster.report(POD, "Succeeded", {"terminated": {"exitCode": 0}})
        await task
        changes = [call.split()[0] for call in cluster.calls if call.endswith(POD) and not call.startswith("GET")]
        assert changes[:2] == ["DELETE", "POST"]

    asyncio.run(scenario())
