"""A typed client over the standard library: one kept connection, problems as exceptions, streams that resume."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from swell.client.errors import DaemonUnreachable, Refused, WrongCertificate
from swell.client.find import Address, url_in

TIMEOUT_S = 30.0
STREAM_TIMEOUT_S = 60.0  # a stream says something at least every 15 s
RETRY_STREAM_S = 30.0  # a daemon that restarts is back long before
FOLLOW_S = 30.0  # a standby has taken over long before
FOLLOW_TIMEOUT_S = 10.0  # where another daemon can be asked instead
ASK_AGAIN_S = 0.2
ACTIVE_HEADER = "Swell-Active"  # of a standby's answer: where to ask instead
JSON = "application/json"
YAML = "application/yaml"

Job = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One server-sent event."""

    event: str
    data: dict[str, Any]
    id: str = ""


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return f"uid-{os.getuid()}"


class _SocketConnection(http.client.HTTPConnection):
    """Over a Unix socket, where the daemon knows whose process this is."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _is_safe(method: str, headers: Mapping[str, str]) -> bool:
    """To be sent twice."""
    return method == "GET" or "Idempotency-Key" in headers


def fingerprint(der: bytes) -> str:
    """Of a certificate, as `swell up` and `swell login` show it."""
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


class PinnedConnection(http.client.HTTPSConnection):
    """Over TLS. With a fingerprint it speaks only to whoever has that certificate, whoever else signed it; without, to
    that this machine's authorities vouch for."""

    def __init__(self, host: str, port: int, timeout_s: float, fingerprint: str) -> None:
        context = ssl.create_default_context()
        if fingerprint:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        super().__init__(host, port, timeout=timeout_s, context=context)
        self._fingerprint = fingerprint

    def connect(self) -> None:
        super().connect()
        if self._fingerprint and self.presented() != self._fingerprint:
            found = self.presented()
            self.close()
            raise WrongCertificate(self.host, found, self._fingerprint)

    def presented(self) -> str:
        """The fingerprint of the other side's certificate."""
        assert isinstance(self.sock, ssl.SSLSocket)
        der = self.sock.getpeercert(binary_form=True) or b""
        return fingerprint(der)


def _no_address(url: str) -> DaemonUnreachable:
    return DaemonUnreachable(
        f"{url!r} is no address of a daemon; write it as `swell up` printed it: http://HOST:PORT, https://HOST:PORT or "
        "unix:/PATH"
    )


class Client:
    """One per command. Not for several threads."""

    def __init__(self, address: Address, user: str = "") -> None:
        self.address = address
        self._urls = [address.url, *address.others]
        self._at = address.url  # the daemon that answered last
        self._connection: http.client.HTTPConnection | None = None
        self._headers = {"Swell-User": quote(user or user_name(), safe="@. ")}
        if address.token:
            self._headers["Authorization"] = f"Bearer {address.token}"

    # -- requests -----------------------------------------------------------------------------------------------------

    def get(self, path: str, **query: object) -> Any:
        return self.request("GET", path + _query(query))

    def post(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        return self.request("POST", path, _encoded(body), {"Content-Type": JSON, **(headers or {})})

    def request_json(self, method: str, path: str, body: object) -> Any:
        return self.request(method, path, _encoded(body), {"Content-Type": JSON})

    def request(
        self, method: str, path: str, body: bytes | IO[bytes] | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """The decoded answer. Raises Refused or DaemonUnreachable."""
        answer, data = self._whole_answer(method, path, body, headers or {})
        if answer.status >= 400:
            raise Refused(answer.status, _problem(data, answer.status))
        return json.loads(data) if data else None

    def _whole_answer(
        self, method: str, path: str, body: bytes | IO[bytes] | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """An answer that breaks off is none: its daemon died meanwhile, and what is safe to ask is asked again."""
        until_s = time.monotonic() + FOLLOW_S
        while True:
            answer = self._answer(method, path, body, headers)
            try:
                return answer, answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not _is_safe(method, headers) or time.monotonic() > until_s:
                    raise self._unreachable(error) from error
            if body is not None and not isinstance(body, bytes):
                body.seek(0)
            time.sleep(ASK_AGAIN_S)

    def _answer(
        self, method: str, path: str, body: bytes | IO[bytes] | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """A kept connection may have been closed meanwhile: then once more with a fresh one, where that is safe. Where
        several daemons may be the active one, they are asked in turn, for as long as a successor needs to take over;
        one that let the time pass, as a suspended one does, is not asked twice."""
        safe = _is_safe(method, headers)
        until_s = time.monotonic() + FOLLOW_S
        while True:
            kept = self._connection is not None
            try:
                answer = self._once(method, path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                again = safe and kept and not (isinstance(error, TimeoutError) and self._has_others)
                if not again and not self._may_ask_another(error, safe=safe, until_s=until_s):
                    raise self._unreachable(error) from error
                if not again:
                    self._ask_another()
            else:
                if not self._is_standby(answer) or time.monotonic() > until_s:
                    return answer
                self._ask_another(answer.headers[ACTIVE_HEADER])
            if body is not None and not isinstance(body, bytes):
                body.seek(0)

    def _may_ask_another(self, error: Exception, *, safe: bool, until_s: float) -> bool:
        """A request that was refused before it was sent has not been carried out, whatever it asks for."""
        return self._has_others and (safe or isinstance(error, ConnectionRefusedError)) and time.monotonic() < until_s

    @property
    def _has_others(self) -> bool:
        return len(self._urls) > 1 or bool(self.address.active_file)

    def _is_standby(self, answer: http.client.HTTPResponse) -> bool:
        return answer.status == 503 and ACTIVE_HEADER in answer.headers

    def _ask_another(self, active: str = "") -> None:
        """The one that a standby named, or that wrote itself down; else the next of those we know. Never over a weaker
        connection than the first."""
        self.close()
        named = [url for url in (active, url_in(self.address.active_file)) if url and _secure(url) >= _secure(self._at)]
        self._urls += [url for url in dict.fromkeys(named) if url not in self._urls]
        following = self._urls[(self._urls.index(self._at) + 1) % len(self._urls)]
        fresh = next((url for url in named if url != self._at), following)
        self._at = fresh
        time.sleep(ASK_AGAIN_S)

    def _once(
        self, method: str, path: str, body: bytes | IO[bytes] | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        timeout_s = FOLLOW_TIMEOUT_S if len(self._urls) > 1 else TIMEOUT_S
        connection = self._connection = self._connection or self._open(timeout_s)
        with contextlib.suppress(BrokenPipeError):  # refused before all was sent; the answer says why
            connection.request(method, path, body=body, headers={**self._headers, **headers})
        return connection.getresponse()

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        parts = urlsplit(self._at)
        if parts.scheme == "unix":
            return _SocketConnection(parts.path, timeout_s)
        if parts.scheme == "kubernetes":
            from swell.client.through_cluster import connection  # here alone: most commands need no kubeconfig

            return connection(self._at, timeout_s)
        try:
            host, port = parts.hostname or "127.0.0.1", parts.port
        except ValueError as error:
            raise _no_address(self._at) from error
        if parts.scheme not in ("http", "https"):
            raise _no_address(self._at)
        if parts.scheme == "https":
            return PinnedConnection(host, port or 443, timeout_s, self.address.fingerprint)
        return http.client.HTTPConnection(host, port or 80, timeout=timeout_s)

    def _unreachable(self, error: Exception) -> DaemonUnreachable:
        why = (error.strerror if isinstance(error, OSError) else "") or error or type(error).__name__
        fix = "start it with `swell up`" if self.address.local else "check this address, and that a daemon runs there"
        return DaemonUnreachable(f"the daemon at {self._at} does not answer ({why}); {fix}. `swell doctor` tells more")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- streams ------------------------------------------------------------------------------------------------------

    def stream(self, path: str, *, until: str = "end", **query: object) -> Iterator[Message]:
        """Messages until one of kind `until` (empty: as many as there are). A broken connection is taken up again
        behind the last message seen."""
        seen = ""
        lost_s: float | None = None
        while True:
            try:
                for message in self._messages(path + _query(query), seen):
                    seen, lost_s = message.id or seen, None
                    yield message
                    if message.event == until:
                        return
                if not until:
                    return
            except (OSError, http.client.HTTPException) as error:
                lost_s = lost_s or time.monotonic()
                if time.monotonic() - lost_s > RETRY_STREAM_S:
                    raise self._unreachable(error) from error
                self._ask_another()

    def _messages(self, path: str, seen: str) -> Iterator[Message]:
        connection = self._open(STREAM_TIMEOUT_S)
        headers = {**self._headers, "Accept": "text/event-stream", **({"Last-Event-ID": seen} if seen else {})}
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            if self._is_standby(answer):
                raise ConnectionError(f"{self._at} is a standby")
            if answer.status >= 400:
                raise Refused(answer.status, _problem(answer.read(), answer.status))
            yield from parse_messages(answer)
        finally:
            connection.close()

    def post_stream(self, path: str, body: object) -> Iterator[Message]:
        """Messages of work that is done while they come. Never taken up again: it would be done twice."""
        connection = self._open(STREAM_TIMEOUT_S)
        try:
            connection.request("POST", path, _encoded(body), {**self._headers, "Content-Type": JSON})
            answer = connection.getresponse()
            if answer.status >= 400:
                raise Refused(answer.status, _problem(answer.read(), answer.status))
            yield from parse_messages(answer)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def raw(self, path: str, /, **query: object) -> Iterator[bytes]:
        """The body as it comes."""
        answer = self._answer("GET", path + _query(query), None, {})
        if answer.status >= 400:
            raise Refused(answer.status, _problem(answer.read(), answer.status))
        while data := answer.read1(1 << 16):
            yield data

    # -- what people do -----------------------------------------------------------------------------------------------

    def me(self) -> str:
        """The user that the daemon identifies the caller as, which may differ from the login name on this machine."""
        return str(self.get("/v1/whoami")["user"]) or user_name()

    def submit(self, document: object, *, key: str, yaml: bool = False) -> dict[str, Any]:
        """`document`: a job, a list of jobs, or (with `yaml`) the text of a job file."""
        headers = {"Content-Type": YAML if yaml else JSON, "Idempotency-Key": key}
        body = str(document).encode() if yaml else _encoded(document)
        answer: dict[str, Any] = self.request("POST", "/v1/jobs", body, headers)
        return answer

    def jobs(self, **query: object) -> tuple[list[Job], int | None]:
        page = self.get("/v1/jobs", **query)
        return page["jobs"], page["next"]

    def job(self, ref: str | int) -> Job:
        found: Job = self.get(job_path(ref))
        return found

    def act(self, ref: str | int, verb: str, body: object = None) -> Job:
        """cancel, pause, resume, priority."""
        found: Job = self.post(job_path(ref, verb), body)
        return found

    def remove(self, ref: str | int) -> None:
        """Stop it now if it has not ended, else take it out of the record."""
        self.request("DELETE", job_path(ref))

    def has_files(self, content_hash: str) -> bool:
        try:
            self.get(f"/v1/files/{content_hash}")
        except Refused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def send_files(self, content_hash: str, archive: IO[bytes], size: int) -> None:
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(size)}
        self.request("PUT", f"/v1/files/{content_hash}", archive, headers)


def _secure(url: str) -> bool:
    """Nobody can read along: encrypted, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme in ("https", "unix", "kubernetes") or parts.hostname in ("127.0.0.1", "localhost", "::1")


def job_path(ref: str | int, rest: str = "") -> str:
    """Of a job, by number or name; `rest`: of what belongs to it, as in "logs". A name has no `/` in it, which a daemon
    would take for another address."""
    if "/" in str(ref):
        detail = f"there is no job named {str(ref)[:100]!r}; `swell ls --all` lists the jobs there are"
        raise Refused(404, {"detail": detail})
    return f"/v1/jobs/{quote(str(ref), safe='')}" + (f"/{rest}" if rest else "")


def _encoded(body: object) -> bytes | None:
    return None if body is None else json.dumps(body, default=str).encode()


def _query(query: Mapping[str, object]) -> str:
    said = {
        key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items() if value != ""
    }
    return f"?{urlencode(said)}" if said else ""


def _problem(data: bytes, status: int) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
        if isinstance(found, dict) and found.get("kind") == "Status":  # the cluster's, on the way to the daemon
            return {"detail": f"the API server of the cluster answered {status}: {found.get('message', '')}"}
        return found if isinstance(found, dict) else {"detail": str(found)}
    except ValueError:
        return {"detail": f"the daemon answered {status}: {data[:200].decode(errors='replace')}"}


def parse_messages(lines: Iterable[bytes]) -> Iterator[Message]:
    event, ident, data = "message", "", ""
    for raw in lines:
        line = raw.decode(errors="replace").rstrip("\r\n")
        if not line:
            if data:
                yield Message(event=event, data=json.loads(data), id=ident)
            event, ident, data = "message", "", ""
            continue
        key, _, value = line.partition(": ")
        if key == "event":
            event = value
        elif key == "id":
            ident = value
        elif key == "data":
            data += value
