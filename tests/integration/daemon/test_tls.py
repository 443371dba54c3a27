"""The daemon over TLS: jobs and commands of this machine by loopback, everybody else encrypted and pinned."""

import http.client
import json
import shutil
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness import Daemon, daemon, eventually
from swell.client.errors import DaemonUnreachable, WrongCertificate
from swell.client.find import Address
from swell.client.http import Client

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("tls") / "home", args=("--tls",)) as running:
        yield running


def public(served: Daemon) -> tuple[str, str]:
    said = json.loads((served.home / "daemon.json").read_text())
    return said["public_url"], said["fingerprint"]


def client(served: Daemon, fingerprint: str) -> Client:
    return Client(Address(url=public(served)[0], token=served.token, local=False, fingerprint=fingerprint))


def test_whoever_pins_the_certificate_speaks_to_the_daemon(served: Daemon) -> None:
    url, fingerprint = public(served)
    assert url.startswith("https://")
    mine = client(served, fingerprint)
    assert mine.get("/v1/whoami")["by"] == "owner"
    mine.close()


def test_another_certificate_is_refused_before_anything_is_sent(served: Daemon) -> None:
    with pytest.raises(WrongCertificate, match="Nothing was sent"):
        client(served, "sha256:" + 64 * "0").get("/v1/whoami")


def test_a_certificate_that_nobody_vouches_for_is_not_believed_unpinned(served: Daemon) -> None:
    with pytest.raises(DaemonUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        client(served, "").get("/v1/whoami")


def test_plain_http_gets_nothing_at_the_door_for_others(served: Daemon) -> None:
    parts = urlsplit(public(served)[0])
    plain = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    plain.request("GET", "/v1/health")
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.getresponse()
    plain.close()


def test_jobs_reach_it_by_loopback_and_the_key_is_private(served: Daemon) -> None:
    (job,) = served.submit(command='echo "$SWELL_URL"')
    eventually(lambda: served.get(f"/v1/jobs/{job}")["ended_s"], 60, what="the job ends")
    assert (served.home / f"runs/{job}.1/0/log").read_text().startswith("http://127.0.0.1:")
    assert stat.S_IMODE((served.home / "tls.key").stat().st_mode) == 0o600


def test_a_restart_keeps_port_and_certificate(tmp_path: Path) -> None:
    with daemon(tmp_path / "home", args=("--tls",)) as running:
        before = public(running)
        running.stop()
        running.start()
        assert public(running) == before


def test_old_protocols_are_not_spoken(served: Daemon) -> None:
    parts = urlsplit(public(served)[0])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection((parts.hostname, parts.port), 5) as raw, pytest.raises(OSError):
        context.wrap_socket(raw)
