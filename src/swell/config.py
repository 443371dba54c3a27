"""One frozen configuration, read and checked at the edge: defaults, then the configuration file, then the environment,
then options of the command. Zero configuration is a complete one: everything on this machine, under ~/.swell."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from swell.core.accounts import Role
from swell.core.errors import SwellError
from swell.core.idle import IdleRules
from swell.core.limits import Limits
from swell.core.notices import Hook, NoticeKind
from swell.core.oidc import OidcSettings
from swell.core.snapshot import Options, Quota
from swell.core.spelling import instead_of
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.home import (
    ACTIVE_NAME,
    ADDRESS_NAME,
    DATABASE_NAME,
    METRICS_TOKEN_NAME,
    TOKEN_NAME,
    default_home,
    kept_slots,
)

CONFIG_NAME = "config.yaml"
LOOPBACK_HOST = "127.0.0.1"
LOOPBACK = frozenset({LOOPBACK_HOST, "localhost", "::1"})
_OF_CLUSTER = {"kubeconfig": "kubeconfig", "kubernetes_context": "context"}
"""Options of commands that choose a cluster, and the settings they are."""
POSTGRES = ("postgresql://", "postgres://")
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - to be refused, or called by another name


class ConfigError(SwellError):
    """The configuration is wrong; the message names the key and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Times in seconds. Paths that are unset lie under `home`."""

    home: Path = field(default_factory=default_home)  # where everything is kept
    host: str = "127.0.0.1"  # the address to listen on
    advertise: str = ""  # the name or address that others reach it by; empty: `host`, or this machine
    socket: str = ""  # also listen on this Unix socket, such as /run/swell/socket: the kernel tells who calls
    socket_role: Role | None = Role.SUBMITTER  # by the socket, of users who were not added; `none`: no role
    run_as: str = "self"  # the user that jobs run as: the daemon's own; `submitter` (needs root): each job's submitter
    tls: bool = False  # encrypt what comes over `host`; jobs and commands of this machine go by loopback
    tls_certificate: str = ""  # PEM file; empty: one of our own, which `swell login` pins
    tls_key: str = ""  # PEM file; empty: in the same file
    oidc: OidcSettings | None = None  # log-in to the dashboard by an OpenID provider; see below
    insecure_listen: bool = False  # allow a `host` that other machines can reach, without encryption
    port: int = 0  # 0: any free one; clients find it in home/daemon.json
    database: str = ""  # empty: SQLite under home; postgresql://… for a server
    standby: bool = False  # wait while another daemon has the database, and take over when it is gone; needs PostgreSQL
    shared: str = ""  # a directory that all daemons of the database see, with what successors need; empty: `home`
    own_machine: bool = True  # this machine takes jobs; false: only machines over SSH and pods do
    gpus: int | None = None  # number of slots to declare on this machine; `auto`, or unset: look for GPUs
    policy: str = ""  # at the first start only; later the last one that was set holds. Empty: the default
    placer: str = ""  # as `policy`
    policy_files: tuple[str, ...] = ()  # Python files with policies of one's own
    options: Options = field(default_factory=Options)  # about decisions in general, see below
    idle_gpus: IdleRules = field(default_factory=IdleRules)  # GPUs that jobs hold and do not use, see below
    pass_interval_s: float = 10.0  # the slow periodic pass; events bring their own
    coalesce_s: float = 0.05  # events this close together are one pass
    gang_timeout_s: float = 120.0  # a run that is not whole by then is stopped and planned again
    preempt_wait_s: float = 3600.0  # at most, for the next checkpoint of a run that is preempted or paused
    resize_wait_s: float = 3600.0  # for a checkpoint that cannot be foreseen; then a resize or move is withdrawn
    container_runtime: str = ""  # podman, docker, or the path of one; empty: the first of them that is found
    container_options: tuple[str, ...] = ()  # of every `run`, such as [--security-opt=no-new-privileges]
    container_mounts: tuple[str, ...] = ("~",)  # directories below which jobs with an image may mount
    container_shm_mib: int = 8192  # size of /dev/shm in a container; 0: the runtime's own default
    container_pids: int = 0  # processes and threads of a container, at most; 0: the runtime's own default
    container_pull_timeout_s: float = 3600.0  # an image that is not there by then is given up
    container_gpu_probe_s: float = 60.0  # how often a container is asked whether it still has its GPUs (NVIDIA)
    checkpoint_copy_every_s: float = 30.0  # checkpoints on other machines are copied here at most so often
    checkpoint_copy_mib: int = 20480  # of one job at most; one with larger checkpoints stays where its files are
    checkpoint_copy_mib_per_s: float = 0.0  # of all copies together, both ways; 0: as fast as it goes
    kubernetes: KubernetesSettings | None = None  # nodes of a cluster take part; see below
    hooks: Mapping[str, Hook] = field(default_factory=dict)  # where notices go, by name; see below
    log_format: str = "text"  # of daemon.log: text, or json, one object per line
    log_stderr: bool = False  # also to standard error, as containers want it; on a terminal always
    otlp_endpoint: str = ""  # OTLP/HTTP receiver of spans; empty: $OTEL_EXPORTER_OTLP_ENDPOINT, or none
    snapshot_max_mib: int = 200  # of working files at submit
    events_keep_days: float = 7.0  # then the log is compacted; what became of jobs is kept. 0: keep all events
    jobs_keep_days: float = 0.0  # ended jobs are removed then, with logs, working copies and checkpoints. 0: keep all
    snapshot_keep_days: float = 7.0  # after it was last submitted with; deleted then unless a job needs it

    @property
    def exposed(self) -> bool:
        """Other machines can connect."""
        return not is_loopback(self.host)

    @property
    def reached_by(self) -> str:
        """The host that is handed out in the daemon's URL."""
        return self.advertise or (LOOPBACK_HOST if self.host in WILDCARDS else self.host)

    @property
    def advertised(self) -> str:
        """What other machines call this one."""
        return self.advertise or (socket.gethostname() if self.host in WILDCARDS else self.host)

    @property
    def host_names(self) -> frozenset[str]:
        """What requests may call this daemon: a page elsewhere must not reach it by a name that resolves to it."""
        own = {self.host, self.advertise, socket.gethostname()} if self.exposed else {self.host, self.advertise}
        return frozenset(name.lower() for name in own if name) - WILDCARDS | LOOPBACK

    @property
    def as_submitter(self) -> bool:
        return self.run_as == "submitter"

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.home / DATABASE_NAME}"

    @property
    def on_server(self) -> bool:
        """Other daemons can reach the database."""
        return self.database.startswith(POSTGRES)

    @property
    def shared_dir(self) -> Path:
        return Path(self.shared) if self.shared else self.home

    @property
    def runs_dir(self) -> Path:
        return self.shared_dir / "runs"

    @property
    def files_dir(self) -> Path:
        return self.shared_dir / "files"

    @property
    def checkpoints_dir(self) -> Path:
        return self.shared_dir / "checkpoints"

    @property
    def work_dir(self) -> Path:
        """Each job's own copy of its files: what it writes there is its own, and stays from attempt to attempt."""
        return self.shared_dir / "work"

    @property
    def token_file(self) -> Path:
        return self.shared_dir / TOKEN_NAME

    @property
    def metrics_token_file(self) -> Path:
        """What Prometheus shows at /metrics: it opens nothing else."""
        return self.shared_dir / METRICS_TOKEN_NAME

    @property
    def active_file(self) -> Path:
        """Where the daemon that has the database answers."""
        return self.shared_dir / ACTIVE_NAME

    @property
    def address_file(self) -> Path:
        return self.home / ADDRESS_NAME


def load_config(home: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Configuration from home/config.yaml (if there) and `overrides` (options of a command; None: unset).
    The number of slots that was declared last holds where neither says one."""
    config = Config(home=(home or default_home()).expanduser().resolve())
    path = config.home / CONFIG_NAME
    config = replace(config, gpus=kept_slots(config.home))
    if path.exists():
        config = _merge(config, _read(path), str(path))
    said = {key: value for key, value in (overrides or {}).items() if value is not None}
    named = {key: said.pop(name) for name, key in _OF_CLUSTER.items() if name in said}
    if named:
        config = replace(config, kubernetes=replace(config.kubernetes or KubernetesSettings(), **named))
    config = _check_exposure(_merge(config, said, "the command line"))
    return _check_standby(_check_pods_reach(_check_user(_check_watching(config))))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _check_exposure(config: Config) -> Config:
    if config.exposed and not config.insecure_listen and not config.tls:
        raise ConfigError(
            f"host {config.host!r} can be reached from other machines, where the token and everything else would "
            "travel unencrypted; pass --tls, or listen on 127.0.0.1 behind an SSH tunnel, or pass "
            "--insecure-listen (insecure_listen: true) if every machine on that network may read it"
        )
    return config


def _check_watching(config: Config) -> Config:
    if config.log_format not in ("text", "json"):
        raise ConfigError(f"log_format must be text or json, not {config.log_format!r}")
    parts = urlsplit(config.otlp_endpoint)
    if config.otlp_endpoint and not (parts.scheme in ("http", "https") and parts.hostname):
        raise ConfigError(f"otlp_endpoint must be as http://127.0.0.1:4318, not {config.otlp_endpoint!r}")
    return config


def _check_user(config: Config) -> Config:
    if config.run_as not in ("self", "submitter"):
        raise ConfigError(f"run_as must be self or submitter, not {config.run_as!r}")
    if config.as_submitter and os.geteuid() != 0:
        raise ConfigError("run_as: submitter needs a daemon that runs as root: only root can start processes of others")
    return config


def _check_standby(config: Config) -> Config:
    if config.shared and not Path(config.shared).is_absolute():
        raise ConfigError(f"shared must be an absolute path, which is the same on every machine, not {config.shared!r}")
    if config.standby and not config.on_server:
        raise ConfigError("a standby needs a database that both daemons reach: --database postgresql://user@host/name")
    if config.standby and not config.shared:
        raise ConfigError("a standby needs --shared DIR, a directory that both daemons see, and a --home of its own")
    return config


def _check_pods_reach(config: Config) -> Config:
    if config.kubernetes is not None and is_loopback(config.reached_by):
        raise ConfigError(
            f"pods cannot reach the daemon at {config.reached_by}: with nodes of a Kubernetes cluster it must listen "
            "on an address that they reach, as `swell up --host 0.0.0.0 --insecure-listen --advertise ADDRESS`"
        )
    return config


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML{_what_of(error)}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of settings, such as `policy: swell`")
    return data


def _what_of(error: yaml.YAMLError) -> str:
    """In one line, where PyYAML draws a picture."""
    mark = getattr(error, "problem_mark", None)
    at = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{at}: {getattr(error, 'problem', None) or str(error).splitlines()[0]}"


def _merge(config: Config, data: Mapping[str, Any], where: str) -> Config:
    return replace(config, **_checked(Config, data, where))


def _checked(
    kind: type[Hook | Config | Options | IdleRules | Quota | Limits | OidcSettings | KubernetesSettings],
    data: object,
    where: str,
) -> dict[str, Any]:
    """The settings of `data` that are fields of `kind`, each of its type; else an error that names the setting."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where} must hold settings, `name: value`, not {data!r}")
    types = {f.name: str(f.type) for f in fields(kind)}
    for key in data:
        if key not in types:
            raise ConfigError(f"{where}: there is no setting {key!r}; {instead_of(key, types)}")
    return {key: _READERS[types[key]](value, f"{where}: {key}") for key, value in data.items()}


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where} must be text, not {value!r}")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ConfigError(f"{where} must be a number of at least 0, not {value!r}")
    return float(value)


def _whole(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{where} must be a whole number of at least 0, not {value!r}")
    return value


def _slots(value: object, where: str) -> int | None:
    return None if value == "auto" else _whole(value, where)


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be true or false, not {value!r}")
    return value


def _role(value: object, where: str) -> Role | None:
    if value in ("none", None):
        return None
    if value not in tuple(Role):
        raise ConfigError(f"{where} must be one of {', '.join(Role)} or none, not {value!r}")
    return Role(str(value))


def _path(value: object, where: str) -> Path:
    return Path(value if isinstance(value, Path) else _text(value, where)).expanduser().resolve()


def _texts(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{where} must be a list of texts, such as [my_policy.py], not {value!r}")
    return tuple(_text(item, where) for item in value)


def _quotas(value: object, where: str) -> dict[str, Quota]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must name teams, such as `vision: {{gpus: 8}}`, not {value!r}")
    return {str(team): _quota(said, f"{where}: {team}") for team, said in value.items()}


def _budgets(value: object, where: str) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{where} must name teams with their GPU hours per month, such as `vision: 2000`, not {value!r}"
        )
    return {str(team): _number(hours, f"{where}: {team}") for team, hours in value.items()}


def _quota(value: object, where: str) -> Quota:
    found = _checked(Quota, value, where)
    if "gpus" not in found:
        raise ConfigError(f"{where} must say how many GPUs the team is entitled to, such as `gpus: 8`")
    return Quota(**found)


def _limits(value: object, where: str) -> Limits:
    return Limits(**_checked(Limits, value, where))


def _limits_of(value: object, where: str) -> dict[str, Limits]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must name users, such as `ana: {{running: 20}}`, not {value!r}")
    return {str(user): _limits(said, f"{where}: {user}") for user, said in value.items()}


def _hooks(value: object, where: str) -> dict[str, Hook]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must name hooks, such as `team: {{url: 'https://…', style: slack}}`, not {value!r}")
    return {str(name): _hook(said, f"{where}: {name}") for name, said in value.items()}


def _hook(value: object, where: str) -> Hook:
    found = _checked(Hook, value, where)
    parts = urlsplit(str(found.get("url", "")))
    if parts.scheme not in ("http", "https", "smtp") or not parts.hostname:
        raise ConfigError(f"{where} needs a url: https://… for a webhook, smtp://host:25/?from=a@b&to=c@d for e-mail")
    if parts.scheme == "smtp" and not {"from", "to"} <= set(parse_qs(parts.query)):
        raise ConfigError(f"{where}: e-mail needs from and to, such as smtp://localhost/?from=swell@lab&to=ana@lab")
    for kind in found.get("kinds", ()):
        if kind not in tuple(NoticeKind):
            raise ConfigError(f"{where}: there are no notices of the kind {kind!r}; {instead_of(kind, NoticeKind)}")
    if found.get("style", "json") not in ("json", "slack"):
        raise ConfigError(f"{where}: style must be json or slack, not {found['style']!r}")
    return Hook(**found)


def _oidc(value: object, where: str) -> OidcSettings:
    found = _checked(OidcSettings, value, where)
    if not {"issuer", "client_id"} <= set(found):
        raise ConfigError(f"{where} needs issuer and client_id, as the provider knows this daemon")
    if urlsplit(found["issuer"]).scheme != "https" and not is_loopback(urlsplit(found["issuer"]).hostname or ""):
        raise ConfigError(f"{where}: issuer must be https://…, or whoever is on the way could log in as anybody")
    return OidcSettings(**found)


def _roles(value: object, where: str) -> dict[str, Role]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must say which value gives which role, such as `admins: admin`, not {value!r}")
    for role in value.values():
        if role not in tuple(Role):
            raise ConfigError(f"{where}: there is no role {role!r}; there are {', '.join(Role)}")
    return {str(name): Role(str(role)) for name, role in value.items()}


def _policy_options(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(v, str | int | float) for v in value.values()):
        raise ConfigError(f"{where} must hold options of the policy, `name: value`, not {value!r}")
    return {str(name): said for name, said in value.items()}


def _kubernetes(value: object, where: str) -> KubernetesSettings:
    """`true` is the cluster of the current context."""
    settings = KubernetesSettings(**_checked(KubernetesSettings, {} if value is True else value, where))
    if settings.storage_claim and settings.storage_path:
        raise ConfigError(f"{where}: storage_claim and storage_path do not go together; write one of them")
    return settings


_READERS: Mapping[str, Callable[[object, str], Any]] = {
    "Path": _path,
    "str": _text,
    "bool": _flag,
    "int": _whole,
    "int | None": _slots,
    "float": _number,
    "tuple[str, ...]": _texts,
    "Role | None": _role,
    "Options": lambda value, where: Options(**_checked(Options, value, where)),
    "IdleRules": lambda value, where: IdleRules(**_checked(IdleRules, value, where)),
    "KubernetesSettings | None": _kubernetes,
    "Mapping[str, Quota]": _quotas,
    "Limits": _limits,
    "Mapping[str, Limits]": _limits_of,
    "Mapping[str, float]": _budgets,
    "OidcSettings | None": _oidc,
    "Mapping[str, Role]": _roles,
    "Mapping[str, Hook]": _hooks,
    "Mapping[str, float | int | str | bool]": _policy_options,
}
"""By the type of a field, as it is written there."""
