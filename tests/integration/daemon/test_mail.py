"""Notices by e-mail, against a real SMTP server."""

import json
import smtplib
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from harness import daemon, eventually
from swell.core.notices import Hook, Notice, NoticeKind
from swell.daemon.hooks import send

controller = pytest.importorskip("aiosmtpd.controller", reason="aiosmtpd is not installed: pip install -e '.[dev]'")


class Mailbox:
    """What a server took; it refuses recipients at nowhere.example."""

    def __init__(self) -> None:
        self.taken: list[tuple[list[str], EmailMessage]] = []

    async def handle_RCPT(self, _s: Any, _n: Any, envelope: Any, address: str, _o: Any) -> str:
        if address.endswith("nowhere.example"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _s: Any, _n: Any, envelope: Any) -> str:
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.taken.append((list(envelope.rcpt_tos), message))
        return "250 taken"


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@contextmanager
def serving(mailbox: Mailbox, **options: Any) -> Iterator[int]:
    """A server, by its port: it cannot be asked to take any that is free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = controller.Controller(mailbox, hostname="127.0.0.1", port=port, **options)
    server.start()
    try:
        yield port
    finally:
        server.stop()


@pytest.fixture
def port(mailbox: Mailbox) -> Iterator[int]:
    with serving(mailbox) as found:
        yield found


def hook(port: int, to: str = "team@example.org") -> Hook:
    return Hook(url=f"smtp://localhost:{port}/?from=swell@example.org&to={to}")


def notice(text: str) -> Notice:
    return Notice(kind=NoticeKind.FAILED, text=text, at_s=1.0)


def test_a_daemon_mails_what_became_of_a_job(tmp_path: Path, mailbox: Mailbox, port: int) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    url = f"smtp://127.0.0.1:{port}/?from=swell@example.org&to=ana@example.org&to=ops@example.org"
    (home / "config.yaml").write_text(json.dumps({"hooks": {"mail": {"url": url, "kinds": ["failed"]}}}))
    with daemon(home) as served:
        assert served.post("/v1/hooks/mail/test")["trouble"] == ""
        served.submit(name="bad", command="exit 3", user="ana")
        eventually(lambda: len(mailbox.taken) == 2, 60, what="the failure is mailed")
    (_, test), (to, failure) = mailbox.taken
    assert "a test" in test["Subject"]
    assert to == ["ana@example.org", "ops@example.org"]
    assert failure["Subject"].startswith("[swell] job 1 (bad, ana) failed")
    assert failure["From"] == "swell@example.org"
    assert "job 1 (bad, ana) failed" in failure.get_content()


def test_a_name_never_becomes_a_header_or_another_recipient(mailbox: Mailbox, port: int) -> None:
    send(hook(port), notice("job 1 (x\r\nBcc: thief@example.org\r\n\r\nhello) failed: ünïcode\n.\nQUIT"), 1, 0.0)
    ((to, message),) = mailbox.taken
    assert to == ["team@example.org"]
    assert message["Bcc"] is None
    assert "Bcc: thief@example.org" in message["Subject"]
    assert "ünïcode\r\n.\r\nQUIT" in message.get_content()


def test_what_the_server_refuses_is_reported(port: int) -> None:
    with pytest.raises(smtplib.SMTPRecipientsRefused, match="no such mailbox"):
        send(hook(port, "nobody@nowhere.example"), notice("x"), 1, 0.0)


def test_mail_is_encrypted_where_the_server_offers_it_and_never_to_a_stranger(
    tmp_path: Path, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *more], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(mailbox, tls_context=context, require_starttls=True) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            send(hook(port), notice("secret"), 1, 0.0)
        assert mailbox.taken == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        send(hook(port), notice("over TLS"), 1, 0.0)
    assert [message["Subject"] for _, message in mailbox.taken] == ["[swell] over TLS"]
