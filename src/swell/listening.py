"""Where the daemon listens: on loopback, by TLS for other machines, on a Unix socket for users of this one. One
application behind all of them. Called by `serve`."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from swell.api.connections import BoundedProtocol
from swell.client.http import fingerprint
from swell.config import LOOPBACK_HOST, Config, ConfigError
from swell.core.accounts import Role
from swell.home import PORT_NAME, TLS_CERTIFICATE_NAME, TLS_KEY_NAME, TLS_PORT_NAME, check_socket, write_private

log = logging.getLogger(__name__)

STOP_GRACE_S = 2
"""Open streams are given so long at a graceful stop."""
CERTIFICATE_DAYS = 3650


class Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would end the process by them before the engine has come to its own end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def leave(self) -> None:
        self.should_exit = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Bound, not yet answering. `url` is for this machine: jobs and the command line. `public_url` is for others."""

    url: str
    plain: socket.socket
    tls: socket.socket | None = None
    public_url: str = ""
    certificate: Path | None = None
    key: Path | None = None
    path: str = ""  # of the Unix socket

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.certificate) if self.certificate else ""


def bind(config: Config) -> Doors:
    """With TLS, what is plain is loopback only."""
    check_socket(config.socket)
    if not config.tls:
        plain = _listener(config.host, config.port, config.home / PORT_NAME)
        return Doors(url=_url("http", config.reached_by, _port(plain)), plain=plain, path=config.socket)
    certificate, key = _certificate(config)
    tls = _listener(config.host, config.port, config.home / TLS_PORT_NAME)
    plain = _listener(LOOPBACK_HOST, 0, config.home / PORT_NAME)
    return Doors(
        url=_url("http", LOOPBACK_HOST, _port(plain)),
        plain=plain,
        tls=tls,
        public_url=_url("https", config.advertised, _port(tls)),
        certificate=certificate,
        key=key,
        path=config.socket,
    )


Served = list[tuple[Server, list[socket.socket] | None]]


@asynccontextmanager
async def answering(app: ASGIApp, doors: Doors) -> AsyncIterator[None]:
    """Answer at the doors of the network as long as the block runs. They stay open for whoever serves next; who comes
    in between waits."""
    servers: Served = [(server_of(app), [doors.plain.dup()])]
    if doors.tls is not None:
        servers.append((_encrypted(app, doors), [doors.tls.dup()]))
    async with _serving(servers):
        yield


@asynccontextmanager
async def also_open(app: ASGIApp, doors: Doors) -> AsyncIterator[None]:
    """Answer at the other doors as well, as long as the block runs."""
    servers: Served = []
    if doors.path:
        servers.append((server_of(app, uds=doors.path), None))
        log.info("users of this machine reach it by SWELL_URL=unix:%s", doors.path)
    if doors.tls is not None:
        servers.append((_encrypted(app, doors), [doors.tls]))
        log.info("other machines reach it by %s (%s)", doors.public_url, doors.fingerprint)
    async with _serving(servers):
        yield


def _encrypted(app: ASGIApp, doors: Doors) -> Server:
    return server_of(app, ssl_certfile=doors.certificate, ssl_keyfile=doors.key)


@asynccontextmanager
async def _serving(servers: Served) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(server.serve(sockets=sockets)) for server, sockets in servers]
    try:
        for (server, _), task in zip(servers, tasks, strict=True):
            while not server.started and not task.done():
                await asyncio.sleep(0.01)
        yield
    finally:
        for server, _ in servers:
            server.leave()
        for task in tasks:
            with suppress(SystemExit):  # what uvicorn raises when it could not listen; it has logged why
                await task


def server_of(app: ASGIApp, **options: Any) -> Server:
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # a peer is who it is: wrong tokens are counted by address
        timeout_graceful_shutdown=STOP_GRACE_S,
        **options,
    )
    return Server(config)


def warning_of(config: Config) -> str:
    """What the configuration opens to others, for whoever starts the daemon; empty: nothing."""
    return "; ".join(found for found in (_of_network(config), _of_socket(config)) if found)


def _of_socket(config: Config) -> str:
    role = config.socket_role
    if not config.socket or config.as_submitter or role is None or not role.includes(Role.SUBMITTER):
        return ""
    return (
        f"every user of this machine may submit jobs by {config.socket}, and all jobs run as the daemon's user: each "
        "can do what that user can. Set `run_as: submitter` (a daemon of root), or `socket_role: viewer` and add "
        "those whom you trust (`swell user add`)"
    )


def _of_network(config: Config) -> str:
    if not config.exposed or config.tls:
        return ""
    return (
        f"listening on {config.host}: other machines can connect, and tokens, code and logs travel unencrypted; "
        "whoever can read that network can run commands here"
    )


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def _listener(host: str, port: int, remembered: Path) -> socket.socket:
    """At the port of before a restart if none is given: running trainings find the daemon again where they left it."""
    # By its protocol asyncio knows TCP, where answers go out at once; without, each would wait 40 ms for the client.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # readers of streams that are gone without a word
    try:
        _bind(listener, host, port or _number_in(remembered))
    except ConfigError:
        if port:
            raise
        _bind(listener, host, 0)
    listener.listen(2048)
    write_private(remembered, str(_port(listener)))
    return listener


def _bind(listener: socket.socket, host: str, port: int) -> None:
    try:
        listener.bind((host, port))
    except OSError as error:
        raise ConfigError(f"it cannot listen on port {port} of {host}: {_why_not(error)}") from error


def _why_not(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there; choose another --port, or leave it out for any free one"
    if error.errno == errno.EACCES:
        return "only root may listen on ports below 1024; choose another --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "it is no address of this machine; `ip address` lists those there are"
    return error.strerror or str(error)


def _number_in(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


# -- certificates -----------------------------------------------------------------------------------------------------


def _certificate(config: Config) -> tuple[Path, Path]:
    """The operator's, else one of our own, made once: clients pin it at `swell login`."""
    if config.tls_certificate:
        return Path(config.tls_certificate), Path(config.tls_key or config.tls_certificate)
    certificate, key = config.shared_dir / TLS_CERTIFICATE_NAME, config.shared_dir / TLS_KEY_NAME
    if not (certificate.exists() and key.exists()):
        _make_certificate(certificate, key, sorted(config.host_names))
    return certificate, key


def _make_certificate(certificate: Path, key: Path, names: list[str]) -> None:
    """By the `openssl` program, which is everywhere: no library for one file."""
    fresh = [path.with_name(f".{path.name}.new") for path in (key, certificate)]
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += [
        "-days",
        str(CERTIFICATE_DAYS),
        "-subj",
        "/CN=swell",
        "-addext",
        f"subjectAltName={_alternatives(names)}",
    ]
    command += ["-keyout", str(fresh[0]), "-out", str(fresh[1])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, umask=0o077)
    except OSError as error:
        raise ConfigError(
            f"a certificate could not be made ({error}); install openssl, or set tls_certificate"
        ) from error
    if done.returncode:
        raise ConfigError(f"openssl made no certificate: {done.stderr.strip()[-300:]}; set tls_certificate and tls_key")
    for path in fresh:
        path.chmod(0o600)
    fresh[0].replace(key)
    fresh[1].replace(certificate)


def _alternatives(names: list[str]) -> str:
    return ",".join(f"{'IP' if _is_address(name) else 'DNS'}:{name}" for name in names)


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, name)
            return True
    return False


def fingerprint_of(certificate: Path) -> str:
    """Of the first certificate in the file."""
    text = certificate.read_text(encoding="ascii", errors="replace")
    begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
    if begin < 0 or end < 0:
        raise ConfigError(f"{certificate} holds no certificate (PEM); `tls_certificate` names the wrong file")
    der = ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])
    return fingerprint(der)
