"""One frozen configuration, read and checked at the edge: defaults, then the configuration file, then the environment,
then options of the command. Zero configuration is a complete one: everything on this machine, under ~/.swell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from swell.core.errors import SwellError
from swell.core.snapshot import Options, Quota
from swell.home import ADDRESS_NAME, TOKEN_NAME, default_home

CONFIG_NAME = "config.yaml"


class ConfigError(SwellError):
    """The configuration is wrong; the message names the key and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Times in seconds. Paths that are not said lie under `home`."""

    home: Path = field(default_factory=default_home)
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one; clients find it in home/daemon.json
    database: str = ""  # empty: SQLite under home; postgresql://… for a server
    gpus: int | None = None  # declare so many slots on this machine, instead of looking for GPUs
    policy: str = ""  # at the first start only; later the last one that was set holds. Empty: the default
    placer: str = ""
    policy_files: tuple[str, ...] = ()  # Python files with policies of one's own
    options: Options = field(default_factory=Options)
    pass_interval_s: float = 10.0  # the slow periodic pass; events bring their own
    coalesce_s: float = 0.05  # events this close together are one pass
    gang_timeout_s: float = 120.0  # a run that is not whole by then is stopped and planned again
    snapshot_max_mib: int = 200  # of working files at submit
    snapshot_keep_days: float = 7.0  # after it was last submitted with; deleted then unless a job needs it

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.home / 'swell.db'}"

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
    def address_file(self) -> Path:
        return self.home / ADDRESS_NAME


def load_config(home: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Configuration from home/config.yaml (if there) and `overrides` (options of a command; None means not said)."""
    config = Config(home=(home or default_home()).expanduser().resolve())
    path = config.home / CONFIG_NAME
    if path.exists():
        config = _merge(config, _read(path), str(path))
    said = {key: value for key, value in (overrides or {}).items() if value is not None}
    return _merge(config, said, "the command line")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of settings, such as `policy: swell`")
    return data


def _merge(config: Config, data: Mapping[str, Any], where: str) -> Config:
    known = {f.name for f in fields(Config)}
    for key in data:
        if key not in known:
            raise ConfigError(f"{where}: there is no setting {key!r}; there are: {', '.join(sorted(known))}")
    changes = dict(data)
    if "options" in changes and not isinstance(changes["options"], Options):
        changes["options"] = _options(changes["options"], where)
    for key in ("home",):
        if key in changes:
            changes[key] = Path(changes[key]).expanduser().resolve()
    if "policy_files" in changes:
        changes["policy_files"] = tuple(str(item) for item in changes["policy_files"])
    return replace(config, **changes)


def _options(data: Mapping[str, Any], where: str) -> Options:
    known = {f.name for f in fields(Options)}
    for key in data:
        if key not in known:
            raise ConfigError(f"{where}: options has no {key!r}; there are: {', '.join(sorted(known))}")
    changes = dict(data)
    if "quotas" in changes:
        changes["quotas"] = {team: Quota(**quota) for team, quota in changes["quotas"].items()}
    return Options(**changes)
