"""What whoever starts a daemon is told about its doors."""

from pathlib import Path
from typing import Any

import pytest

from swell.config import Config
from swell.core.accounts import Role
from swell.listening import warning_of


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, ""),
        ({"host": "0.0.0.0", "insecure_listen": True}, "unencrypted"),
        ({"host": "0.0.0.0", "tls": True}, ""),
        ({"socket": "/run/swell/socket"}, "all jobs run as the daemon's user"),
        ({"socket": "/run/swell/socket", "run_as": "submitter"}, ""),
        ({"socket": "/run/swell/socket", "socket_role": Role.VIEWER}, ""),
        ({"socket": "/run/swell/socket", "socket_role": None}, ""),
    ],
)
def test_whoever_opens_the_daemon_to_others_is_told_what_that_allows(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    warning = warning_of(Config(home=tmp_path, **fields))
    assert said in warning if said else warning == ""
