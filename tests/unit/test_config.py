"""The configuration file: what it may say, and what a person is told about what it may not."""

from __future__ import annotations

import socket
from dataclasses import fields
from pathlib import Path

import pytest

from swell.config import _READERS, Config, ConfigError, load_config
from swell.core.snapshot import Options, Quota


def written(home: Path, text: str) -> Config:
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return load_config(home)


def test_nothing_said_is_a_complete_configuration(tmp_path: Path) -> None:
    config = load_config(tmp_path)
    assert config.database_url == f"sqlite:///{tmp_path}/swell.db"
    assert written(tmp_path, "") == config


def test_everything_said_is_heard(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        """
        port: 7000
        gpus: 4
        policy_files: [mine.py]
        pass_interval_s: 5
        options:
          starvation_s: 60
          quotas: {vision: {gpus: 8, borrow: false}}
          budgets: {vision: 2000}
          policy: {tolerance: 1.4}
        """,
    )
    assert (config.port, config.gpus, config.policy_files, config.pass_interval_s) == (7000, 4, ("mine.py",), 5.0)
    assert config.options == Options(
        starvation_s=60.0,
        quotas={"vision": Quota(gpus=8, borrow=False)},
        budgets={"vision": 2000.0},
        policy={"tolerance": 1.4},
    )


def test_options_of_the_command_win_unless_they_are_not_said(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("port: 7000\ngpus: 4\n", encoding="utf-8")
    config = load_config(tmp_path, {"port": 8000, "gpus": None})
    assert (config.port, config.gpus) == (8000, 4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port: [", "not valid YAML"),
        ("- port", "must hold a mapping"),
        ("prot: 7000", "did you mean port?"),
        ("port: many", "port must be a whole number"),
        ("gpus: -1", "gpus must be a whole number of at least 0"),
        ("gpus: true", "gpus must be a whole number"),
        ("pass_interval_s: soon", "pass_interval_s must be a number"),
        ("pass_interval_s: .inf", "pass_interval_s must be a number"),
        ("policy: 5", "policy must be text"),
        ("policy_files: mine.py", "policy_files must be a list"),
        ("log_format: xml", "log_format must be text or json"),
        ("otlp_endpoint: localhost:4318", "otlp_endpoint must be as http://"),
        ("options: 5", "options must hold settings"),
        ("options: {starvation: 5}", "did you mean starvation_s?"),
        ("options: {budgets: 8}", "must name teams with their GPU hours"),
        ("options: {budgets: {vision: lots}}", "vision must be a number of at least 0"),
        ("options: {quotas: 8}", "must name teams"),
        ("options: {quotas: {vision: 8}}", "vision must hold settings"),
        ("options: {quotas: {vision: {borrow: true}}}", "vision must say how many GPUs"),
        ("options: {quotas: {vision: {gpus: 8, borrow: 1}}}", "borrow must be true or false"),
        ("options: {policy: {tolerance: [1]}}", "must hold options of the policy"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        written(tmp_path, text)


def test_every_setting_has_a_reader() -> None:
    for kind in (Config, Options, Quota):
        for setting in fields(kind):
            assert str(setting.type) in _READERS, setting.name


# -- who can connect --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_this_machine_only(tmp_path: Path, host: str) -> None:
    config = load_config(tmp_path, {"host": host})
    assert not config.exposed
    assert config.reached_by == host
    assert config.host_names == {"127.0.0.1", "localhost", "::1", host}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "gpu1.example"])
def test_others_are_let_in_only_on_purpose(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="--insecure-listen"):
        load_config(tmp_path, {"host": host})
    with pytest.raises(ConfigError, match="unencrypted"):
        written(tmp_path, f'host: "{host}"')
    assert load_config(tmp_path, {"host": host, "insecure_listen": True}).exposed
    assert load_config(tmp_path, {"host": host, "tls": True}).exposed


def test_what_others_call_it_is_known_and_handed_out(tmp_path: Path) -> None:
    everywhere = load_config(tmp_path, {"host": "0.0.0.0", "insecure_listen": True})
    assert everywhere.reached_by == "127.0.0.1"
    assert everywhere.host_names == {"127.0.0.1", "localhost", "::1", socket.gethostname().lower()}
    named = load_config(tmp_path, {"host": "::", "insecure_listen": True, "advertise": "Swell.example"})
    assert named.reached_by == "Swell.example"
    assert "swell.example" in named.host_names
    assert "::" not in named.host_names
    behind_a_proxy = load_config(tmp_path, {"advertise": "swell.example"})
    assert "swell.example" in behind_a_proxy.host_names


# -- nodes of a Kubernetes cluster ------------------------------------------------------------------------------------

REACHED = {"host": "0.0.0.0", "insecure_listen": True, "advertise": "10.0.0.1"}


def test_a_cluster_is_chosen_by_options_over_what_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("kubernetes: {context: lab, storage_claim: data}\n")
    config = load_config(tmp_path, {**REACHED, "kubernetes_context": "cloud"})
    assert config.kubernetes is not None
    assert (config.kubernetes.context, config.kubernetes.storage_claim) == ("cloud", "data")


def test_without_a_word_about_it_there_is_no_cluster(tmp_path: Path) -> None:
    assert load_config(tmp_path).kubernetes is None


def test_a_daemon_that_pods_cannot_reach_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--advertise ADDRESS"):
        load_config(tmp_path, {"kubernetes_context": "cloud"})


def test_settings_of_a_cluster_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no setting 'storage'"):
        written(tmp_path, "kubernetes: {storage: x}")
    with pytest.raises(ConfigError, match="write one of them"):
        written(tmp_path, "kubernetes: {storage_claim: x, storage_path: /y}")
