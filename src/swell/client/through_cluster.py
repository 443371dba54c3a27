"""To a daemon in a Kubernetes cluster through its API server, which hands requests on to a service. Whoever may use the
cluster needs no open port and no address of the daemon:

    kubernetes://CONTEXT/NAMESPACE/SERVICE:PORT[?kubeconfig=FILE]     (CONTEXT quoted as in any URL)

The API server keeps `Authorization` for itself, so the daemon's own token goes beside it.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from swell.client.errors import DaemonUnreachable

if TYPE_CHECKING:
    from lightkube.config.models import User, UserExec

SCHEME = "kubernetes"
BESIDE = "Swell-Authorization"
EXEC_S = 60.0
"""A program that a kubeconfig names may ask a person to log in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A service of a cluster, as a kubeconfig reaches it."""

    context: str
    namespace: str
    service: str  # with its port
    kubeconfig: str = ""  # empty: $KUBECONFIG, ~/.kube/config

    @property
    def url(self) -> str:
        said = f"?{urlencode({'kubeconfig': self.kubeconfig})}" if self.kubeconfig else ""
        return f"{SCHEME}://{quote(self.context, safe='')}/{self.namespace}/{self.service}{said}"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{self.service}/proxy"


def door_of(url: str) -> Door:
    """Raises DaemonUnreachable for what is no such address."""
    parts = urlsplit(url)
    namespace, _, service = parts.path.strip("/").partition("/")
    if not (parts.netloc and namespace and service):
        raise DaemonUnreachable(f"{url} is no address in a cluster: write kubernetes://CONTEXT/NAMESPACE/SERVICE:PORT")
    (kubeconfig,) = parse_qs(parts.query).get("kubeconfig", [""])
    return Door(context=unquote(parts.netloc), namespace=namespace, service=service, kubeconfig=kubeconfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """Of the cluster of a context. `authorization`: who we are there, unless a certificate says so."""

    context: str
    url: str
    authorization: str
    tls: ssl.SSLContext

    def connection(self, path: str, timeout_s: float) -> ThroughCluster:
        """To what is behind a path of it; empty: to itself."""
        parts = urlsplit(self.url)
        return ThroughCluster(self, parts.hostname or "", parts.port or 443, parts.path.rstrip("/") + path, timeout_s)


class ThroughCluster(http.client.HTTPSConnection):
    """Speaks as if what is behind a path of the API server were at the other end."""

    def __init__(self, server: ApiServer, host: str, port: int, prefix: str, timeout_s: float) -> None:
        super().__init__(host, port, timeout=timeout_s, context=server.tls)
        self._server = server
        self._prefix = prefix

    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, Any] = {},
        *,
        encode_chunked: bool = False,
    ) -> None:
        sent = {BESIDE if name == "Authorization" else name: value for name, value in headers.items()}
        if self._server.authorization:
            sent["Authorization"] = self._server.authorization
        super().request(method, self._prefix + url, body, sent, encode_chunked=encode_chunked)


def connection(url: str, timeout_s: float) -> ThroughCluster:
    """To a daemon. Raises DaemonUnreachable, with what to do, if the kubeconfig does not lead there."""
    door = door_of(url)
    return api_server(door.context, door.kubeconfig).connection(door.path, timeout_s)


def api_server(context: str, kubeconfig: str) -> ApiServer:
    """`context` empty: the current one. Contacts nobody, but for programs that the kubeconfig names for logging in."""
    try:
        from lightkube.config.client_adapter import verify_cluster
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError
    except ImportError:
        raise DaemonUnreachable("a cluster is reached with lightkube: pip install 'swell[kubernetes]'") from None
    try:
        found = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        config = found.get(context or None)
        if config is None or config.user is None:
            raise ConfigError("it names no user")
        tls = verify_cluster(config.cluster, config.user, config.abs_file)
        authorization = _authorization(config.user)
    except (ConfigError, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
        raise DaemonUnreachable(
            f"the kubeconfig does not lead to the cluster{f' of context {context}' if context else ''} ({error}); see "
            "`kubectl config get-contexts`, and name one with --kubernetes-context or a file with --kubeconfig"
        ) from None
    url = str(config.cluster.server)
    if not url.startswith("https:"):
        raise DaemonUnreachable(
            f"the API server at {url} has no TLS: tokens could be read on the way; use one that has"
        )
    return ApiServer(context=config.context_name, url=url, authorization=authorization, tls=tls)


def _authorization(user: User) -> str:
    if user.token_file:
        return f"Bearer {Path(user.token_file).read_text(encoding='utf-8').strip()}"
    if user.token:
        return f"Bearer {user.token}"
    if user.exec:
        return f"Bearer {_token_by(user.exec)}"
    if user.username and user.password:
        return f"Basic {base64.b64encode(f'{user.username}:{user.password}'.encode()).decode()}"
    return ""


def _token_by(program: UserExec) -> str:
    """Asked for each command: such programs keep what they need between calls."""
    asked = {"apiVersion": program.apiVersion, "kind": "ExecCredential", "spec": {"interactive": False}}
    env = {**os.environ, **{item.name: item.value for item in program.env or ()}}
    env["KUBERNETES_EXEC_INFO"] = json.dumps(asked)
    words = [program.command, *(program.args or ())]
    told = subprocess.run(words, env=env, capture_output=True, check=True, timeout=EXEC_S)
    return str(json.loads(told.stdout)["status"]["token"])
