"""Asks the daemon, on behalf of a pod, how long its workers may go on. Standard library only, runs in the container.

The containers of a pod share the lease file of `lease`: whichever of them is answered extends it for all. Each request
carries the pod's own clock, and the answer is absolute in that clock: an answer that is delayed extends nothing.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import urllib.error
import urllib.request

from swell.shim import lease
from swell.shim.files import Json, boot_id, boot_s, read_json

ANSWER_S, PAUSE_S = 10.0, 1.0
GONE = 410
"""The daemon's answer to a run that is no current attempt."""


class NoLease(Exception):
    """`refused`: the daemon answered that the run is over; else the daemon did not answer."""

    def __init__(self, why: str, *, refused: bool) -> None:
        super().__init__(why)
        self.refused = refused


class Renewal:
    """`directory` holds the lease file of the pod."""

    def __init__(self, directory: str, url: str, run: str, node: str, token: str) -> None:
        self._directory = directory
        self._url = f"{url}/v1/runs/{run}/lease"
        self._daemon = url
        self._node = node
        self._token = token
        self._every_s = PAUSE_S
        self._refused = False

    def begin(self, patience_s: float) -> None:
        """Returns with a lease that holds now. Raises NoLease."""
        give_up_s = time.monotonic() + patience_s
        while True:
            try:
                self._ask()
            except OSError as error:
                if time.monotonic() >= give_up_s:
                    why = f"the pod cannot reach the daemon at {self._daemon} ({error})"
                    raise NoLease(why, refused=False) from None
            if self._refused:
                raise NoLease("this attempt is over for the daemon", refused=True)
            if self.left_s() > 0:
                return
            time.sleep(PAUSE_S)

    def keep(self) -> None:
        """Ask again and again from now on. Called after the worker was forked: a fork copies no threads."""
        threading.Thread(target=self._keep_asking, name="lease", daemon=True).start()

    def left_s(self) -> float:
        """How long the workers of this pod may still go on."""
        return -math.inf if self._refused else lease.left_s(self._directory)

    def _keep_asking(self) -> None:
        while not self._refused:
            time.sleep(self._every_s)
            try:
                self._ask()
            except OSError:  # the lease goes on until it ends
                continue

    def _ask(self) -> None:
        body = json.dumps({"node": self._node, "boot_s": boot_s()}).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url, data=body, headers=headers)  # noqa: S310 - the daemon's own address
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
                self._take(json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            self._refused = self._refused or error.code == GONE
            if error.code != GONE:
                raise
        except ValueError as error:  # not the daemon that answers there
            raise OSError(f"no answer of a daemon: {error}") from None

    def _take(self, answer: Json) -> None:
        known = read_json(os.path.join(self._directory, lease.NAME)) or {}
        if known.get("epoch", 0) <= answer["epoch"]:  # an older daemon that wakes up extends nothing
            lease.renew(self._directory, boot_id(), answer["until_s"], answer["epoch"])
        self._every_s = float(answer["every_s"])
