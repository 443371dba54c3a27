"""Checks whether pods reach the daemon at its address: a small pod tries it when the daemon starts, before the first
job does. The result is in the log and in `swell doctor`; jobs are planned in any case: their nodes may differ."""

from __future__ import annotations

import asyncio
import logging

from swell.executors.kubernetes.api import Api, Refusal, namespaced
from swell.executors.kubernetes.manifests import Manifest
from swell.executors.kubernetes.objects import CLUSTER, Json
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.executors.transport import Unreachable
from swell.ports import Check, Verdict

log = logging.getLogger(__name__)

NAME = "reach"
TRIES, TRY_S = 6, 5
"""Tries within the pod, because the daemon may still be starting."""
WAIT_S, LOOK_S, AGAIN_S = 120.0, 1.0, 60.0
"""Time-out of the pod; interval between looks at it; delay before the next pod if the daemon was not reached."""
NOT_REACHED = 7
_ASK = """
import ssl, sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=5, context=ssl._create_unverified_context())
"""
_ADVERTISE = "start the daemon with --advertise and an address that pods reach; look for firewalls and NetworkPolicies"
_IMAGE = "set `probe_image` under `kubernetes:` in config.yaml to one that its nodes have, with python3, wget or curl"
_SCRIPT = """
url="$0/v1/health" tries="$1"
if command -v python3 >/dev/null; then ask() { python3 -c "$3" "$url"; }
elif command -v wget >/dev/null; then ask() { wget -q -T 5 --no-check-certificate -O /dev/null "$url"; }
elif command -v curl >/dev/null; then ask() { curl -sS -f -k -m 5 -o /dev/null "$url"; }
else echo "the image has no python3, wget or curl"; exit 8
fi
while [ "$tries" -gt 0 ]; do
  said=$(ask "$@" 2>&1) && exit 0
  tries=$((tries - 1)); sleep "$2"
done
echo "${said##*
}"
exit 7
"""


class Reach:
    """`findings`: not empty while the daemon is not reached, or if the check is impossible."""

    def __init__(self, api: Api, cluster: str, url: str, settings: KubernetesSettings) -> None:
        self._api = api
        self._url = url
        self._image = settings.probe_image
        self._cluster = cluster
        self._path = namespaced(api.namespace, "pods", f"swell-{cluster[:8]}-{NAME}")
        self.findings: dict[str, Check] = {}

    async def run(self) -> None:
        """Repeats the check until pods reach the daemon, or the check is impossible."""
        while self._image:
            found = await self._tried()
            if found is None:
                await asyncio.sleep(AGAIN_S)
                continue
            self._note(found)
            if found.verdict is not Verdict.FAILED:
                return
            await asyncio.sleep(AGAIN_S)

    def _note(self, found: Check) -> None:
        if found.verdict is Verdict.OK:
            log.info("%s", found.words)
            self.findings.pop(NAME, None)
        else:
            log.warning("%s; %s", found.words, found.fix)
            self.findings[NAME] = found

    async def _tried(self) -> Check | None:
        """None: the API server did not answer."""
        try:
            await self._gone()
            namespace = self._api.namespace
            pod = probe_pod(self._cluster, namespace, self._image, self._url)
            await self._api.create(namespaced(namespace, "pods"), pod)
            found = await self._ended()
            await self._api.delete(self._path, 1)
        except Unreachable:
            return None
        except Refusal as refusal:
            return _unknown(self._url, f"the cluster refused the pod that tries it: {refusal}", "see what it refuses")
        return judged(found.get("status") or {}, self._url)

    async def _gone(self) -> None:
        """Delete the pod that an earlier daemon has left, and wait until it is gone."""
        await self._api.delete(self._path, 1)
        give_up_s = _now_s() + WAIT_S
        while _now_s() < give_up_s:
            try:
                await self._api.get(self._path)
            except Refusal as refusal:
                if refusal.code == 404:
                    return
                raise
            await asyncio.sleep(LOOK_S)

    async def _ended(self) -> Json:
        """The pod after its end, or at the time-out."""
        give_up_s = _now_s() + WAIT_S
        while True:
            found: Json = await self._api.get(self._path)
            if (found.get("status") or {}).get("phase") in ("Succeeded", "Failed") or _now_s() >= give_up_s:
                return found
            await asyncio.sleep(LOOK_S)


def probe_pod(cluster: str, namespace: str, image: str, url: str) -> Manifest:
    """The pod for the check. It has no GPU, no permissions, and Swell's label, so it does not count as a pod of
    others."""
    container = {
        "name": NAME,
        "image": image,
        "command": ["/bin/sh", "-c", _SCRIPT, url, str(TRIES), str(TRY_S), _ASK],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"swell-{cluster[:8]}-{NAME}", "namespace": namespace, "labels": {CLUSTER: cluster}},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(WAIT_S),
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
        },
    }


def judged(status: Json, url: str) -> Check:
    """The finding from the pod's end, or from what it waits for. Pure."""
    if status.get("phase") == "Succeeded":
        return Check(name="kubernetes", verdict=Verdict.OK, words=f"pods reach the daemon at {url}")
    states: list[Json] = [container.get("state") or {} for container in status.get("containerStatuses") or ()]
    ended: Json = next((state["terminated"] for state in states if "terminated" in state), {})
    if ended.get("exitCode") == NOT_REACHED:
        why = str(ended.get("message") or "no answer").strip()
        words = f"pods do not reach the daemon at {url} ({why}), so that no job can run as pods"
        return Check(name="kubernetes", verdict=Verdict.FAILED, words=words, fix=_ADVERTISE)
    waits: Json = next((state["waiting"] for state in states if "waiting" in state), {})
    unplaced: Json = next((one for one in status.get("conditions") or () if one.get("status") == "False"), {})
    said = (ended.get("message"), waits.get("message"), waits.get("reason"), unplaced.get("message"))
    found = next(filter(None, (*said, status.get("message"))), "no reason given")
    return _unknown(url, f"the pod that tries it did not run: {found}", _IMAGE)


def _unknown(url: str, why: str, fix: str) -> Check:
    words = f"whether pods reach the daemon at {url} is not known ({why.strip()})"
    return Check(name="kubernetes", verdict=Verdict.NOTE, words=words, fix=fix)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
