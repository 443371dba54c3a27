"""One frozen configuration, read and checked at the edge: defaults, then the configuration file, then the environment,
then options of the command. Zero configuration is a complete one: everything on this machine, under ~/.swell."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from swell.core.errors import SwellError
from swell.core.snapshot import Options, Quota
from swell.core.spelling import instead_of
from swell.home import ADDRESS_NAME, DATABASE_NAME, METRICS_TOKEN_NAME, TOKEN_NAME, default_home, kept_slots

CONFIG_NAME = "config.yaml"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - to be refused, or called by another name


class ConfigError(SwellError):
    """The configuration is wrong; the message names the key and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Times in seconds. Paths that are not said lie under `home`."""

    home: Path = field(default_factory=default_home)  # where everything is kept
    host: str = "127.0.0.1"  # the address to listen on
    advertise: str = ""  # the name or address that others reach it by; empty: `host`, or this machine
    insecure_listen: bool = False  # allow a `host` that other machines can reach; there is no encryption
    port: int = 0  # 0: any free one; clients find it in home/daemon.json
    database: str = ""  # empty: SQLite under home; postgresql://… for a server
    gpus: int | None = None  # declare so many slots on this machine; `auto`, or unset: look for GPUs
    policy: str = ""  # at the first start only; later the last one that was set holds. Empty: the default
    placer: str = ""  # as `policy`
    policy_files: tuple[str, ...] = ()  # Python files with policies of one's own
    options: Options = field(default_factory=Options)  # about decisions in general, see below
    pass_interval_s: float = 10.0  # the slow periodic pass; events bring their own
    coalesce_s: float = 0.05  # events this close together are one pass
    gang_timeout_s: float = 120.0  # a run that is not whole by then is stopped and planned again
    preempt_wait_s: float = 3600.0  # at most, for the next checkpoint of a run that is preempted or paused
    snapshot_max_mib: int = 200  # of working files at submit
    snapshot_keep_days: float = 7.0  # after it was last submitted with; deleted then unless a job needs it

    @property
    def exposed(self) -> bool:
        """Other machines can connect."""
        return not is_loopback(self.host)

    @property
    def reached_by(self) -> str:
        """The host that is handed out in the daemon's URL."""
        return self.advertise or ("127.0.0.1" if self.host in WILDCARDS else self.host)

    @property
    def host_names(self) -> frozenset[str]:
        """What requests may call this daemon: a page elsewhere must not reach it by a name that resolves to it."""
        own = {self.host, self.advertise, socket.gethostname()} if self.exposed else {self.host, self.advertise}
        return frozenset(name.lower() for name in own if name) - WILDCARDS | LOOPBACK

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.home / DATABASE_NAME}"

    @property
    def runs_dir(self) -> Path:
        return self.home / "runs"

    @property
    def files_dir(self) -> Path:
        return self.home / "files"

    @property
    def checkpoints_dir(self) -> Path:
        return self.home / "checkpoints"

    @property
    def work_dir(self) -> Path:
        """Each job's own copy of its files: what it writes there is its own, and stays from attempt to attempt."""
        return self.home / "work"

    @property
    def token_file(self) -> Path:
        return self.home / TOKEN_NAME

    @property
    def metrics_token_file(self) -> Path:
        """What Prometheus shows at /metrics: it opens nothing else."""
        return self.home / METRICS_TOKEN_NAME

    @property
    def address_file(self) -> Path:
        return self.home / ADDRESS_NAME


def load_config(home: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Configuration from home/config.yaml (if there) and `overrides` (options of a command; None means not said).
    The number of slots that was declared last holds where neither says one."""
    config = Config(home=(home or default_home()).expanduser().resolve())
    path = config.home / CONFIG_NAME
    config = replace(config, gpus=kept_slots(config.home))
    if path.exists():
        config = _merge(config, _read(path), str(path))
    said = {key: value for key, value in (overrides or {}).items() if value is not None}
    return _check_exposure(_merge(config, said, "the command line"))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _check_exposure(config: Config) -> Config:
    if config.exposed and not config.insecure_listen:
        raise ConfigError(
            f"host {config.host!r} can be reached from other machines, where the token and everything else would "
            "travel unencrypted; listen on 127.0.0.1 behind a proxy with TLS or an SSH tunnel, or pass "
            "--insecure-listen (insecure_listen: true) if every machine on that network may read it"
        )
    return config


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of settings, such as `policy: swell`")
    return data


def _merge(config: Config, data: Mapping[str, Any], where: str) -> Config:
    return replace(config, **_checked(Config, data, where))


def _checked(kind: type[Config | Options | Quota], data: object, where: str) -> dict[str, Any]:
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


def _quota(value: object, where: str) -> Quota:
    found = _checked(Quota, value, where)
    if "gpus" not in found:
        raise ConfigError(f"{where} must say how many GPUs the team is entitled to, such as `gpus: 8`")
    return Quota(**found)


def _policy_options(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(v, str | int | float) for v in value.values()):
        raise ConfigError(f"{where} must hold options of the policy, `name: value`, not {value!r}")
    return {str(name): said for name, said in value.items()}


_READERS: Mapping[str, Callable[[object, str], Any]] = {
    "Path": _path,
    "str": _text,
    "bool": _flag,
    "int": _whole,
    "int | None": _slots,
    "float": _number,
    "tuple[str, ...]": _texts,
    "Options": lambda value, where: Options(**_checked(Options, value, where)),
    "Mapping[str, Quota]": _quotas,
    "Mapping[str, float | int | str | bool]": _policy_options,
}
"""By the type of a field, as it is written there."""
