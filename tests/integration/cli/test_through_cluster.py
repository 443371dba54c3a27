"""`swell up --kubernetes` and commands after it against a stand-in for an API server: it keeps what is applied, wants a
token of its own and keeps `Authorization` for itself, and hands requests to a service on to a real daemon."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from harness import Daemon
from swell.listening import _make_certificate

PROXY = "/api/v1/namespaces/swell/services/swell:8700/proxy"
SECRETS = "/api/v1/namespaces/swell/secrets"
OWN = "Bearer of-the-cluster"


class ApiServer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    daemon: ClassVar[tuple[str, int]]
    objects: ClassVar[dict[str, dict[str, Any]]]

    def do_GET(self) -> None:
        if self.headers["Authorization"] != OWN:
            self._answer(401, {"kind": "Status", "message": "Unauthorized"})
        elif self.path.startswith(PROXY):
            self._hand_on()
        else:
            self._object()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _object(self) -> None:
        path, body = self.path.partition("?")[0], self._body()
        if self.command == "PATCH":
            assert self.headers["Content-Type"] == "application/apply-patch+yaml"
            assert "fieldManager=swell" in self.path
            self.objects[path] = json.loads(body)
            self._answer(200, self.objects[path])
        elif self.command == "POST" and f"{path}/swell-token" in self.objects:
            self._answer(409, {"message": "it is there", "reason": "AlreadyExists"})
        else:
            self._answer(200, self.objects[path])

    def _hand_on(self) -> None:
        kept = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        connection = http.client.HTTPConnection(*self.daemon, timeout=30)
        connection.request(self.command, self.path.removeprefix(PROXY), self._body() or None, kept)
        answer = connection.getresponse()
        self._answer(answer.status, answer.read(), answer.headers["Content-Type"] or "")
        connection.close()

    def _answer(self, status: int, body: object, kind: str = "application/json") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def cluster(tmp_path: Path, daemon: Daemon) -> Iterator[tuple[Path, dict[str, dict[str, Any]]]]:
    """A kubeconfig, and what the stand-in keeps. The daemon has the token of its Secret already."""
    certificate, key = tmp_path / "k.crt", tmp_path / "k.key"
    _make_certificate(certificate, key, ["localhost"])
    token = base64.b64encode((daemon.home / "token").read_bytes()).decode()
    objects: dict[str, dict[str, Any]] = {f"{SECRETS}/swell-token": {"data": {"token": token}}}
    port = int((daemon.home / "port").read_text(encoding="ascii"))
    handler = type("Serving", (ApiServer,), {"objects": objects, "daemon": ("127.0.0.1", port)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        authority = base64.b64encode(certificate.read_bytes()).decode()
        url = f"https://localhost:{server.server_port}"
        config = {
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "me"}}],
            "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority-data": authority}}],
            "users": [{"name": "me", "user": {"token": OWN.removeprefix("Bearer ")}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield path, objects
        finally:
            server.shutdown()
            thread.join()


def swell(home: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("SWELL_URL", "SWELL_TOKEN", "KUBECONFIG")}
    words = (sys.executable, "-m", "swell", *words)
    env["SWELL_HOME"] = str(home)
    return subprocess.run(words, env=env, input=stdin, capture_output=True, text=True, check=False, timeout=90)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    found = Daemon(tmp_path / "in-cluster", gpus=2)
    found.start()
    yield found
    found.stop()


def test_up_shows_creates_and_talks_to_the_daemon_through_the_api_server(tmp_path: Path, daemon: Daemon) -> None:
    home = tmp_path / "laptop"
    with cluster(tmp_path, daemon) as (kubeconfig, objects):
        options = ("--kubernetes", "--image", "r/swell:2", "--kubeconfig", str(kubeconfig))
        refused = swell(home, "up", *options, stdin="n\n")
        assert refused.returncode != 0
        assert "image: r/swell:2" in refused.stdout
        assert len(objects) == 1, "nothing is created before it is confirmed"
        told = swell(home, "up", *options, stdin="y\n")
        assert told.returncode == 0, told.stderr + told.stdout
        assert "1 node, 2 GPUs" in told.stdout
        assert "/apis/apps/v1/namespaces/swell/deployments/swell" in objects
        assert "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/swelljobs.swell.dev" in objects
        run = swell(home, "run", "--gpus", "1", "--", "echo", "trained")
        assert run.returncode == 0, run.stderr + run.stdout
        assert "trained" in swell(home, "logs", "1").stdout
        who = swell(home, "whoami")
        assert "may do everything" in who.stdout, who.stderr
        kubeconfig.write_text(kubeconfig.read_text(encoding="utf-8").replace("of-the-cluster", "old"), encoding="utf-8")
        shut = swell(home, "ls")
        assert shut.returncode != 0
        assert "the API server of the cluster answered 401: Unauthorized" in shut.stderr


def test_down_leaves_a_daemon_in_a_cluster_alone(tmp_path: Path, daemon: Daemon) -> None:
    home = tmp_path / "laptop"
    with cluster(tmp_path, daemon) as (kubeconfig, _):
        options = ("--kubernetes", "--image", "i", "--kubeconfig", str(kubeconfig), "--yes", "--json")
        told = swell(home, "up", *options)
        assert json.loads(told.stdout)["url"] == f"kubernetes://lab/swell/swell:8700?kubeconfig={_quoted(kubeconfig)}"
        assert "another machine" in swell(home, "down").stderr


def _quoted(path: Path) -> str:
    return str(path).replace("/", "%2F")
