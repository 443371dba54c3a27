"""The table of what routes need: complete, and safe for what it does not know."""

from unittest.mock import Mock

import pytest

from swell.api.access import NEEDS, Need, found, refusal
from swell.api.app import create_app
from swell.config import Config
from swell.core.accounts import Caller, Role, Way

OPEN = {("GET", "/v1/health"), ("POST", "/v1/ui/sessions")}
"""Open to everybody: `guard` lets them pass before anybody asks who calls."""


def described() -> set[tuple[str, str]]:
    paths = create_app(Mock(), "t" * 40, Config()).openapi()["paths"]
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_every_route_says_what_it_needs() -> None:
    assert described() - set(NEEDS) - OPEN == set(), "add the route to swell.api.access.NEEDS"


def test_the_table_names_no_route_that_is_not_there() -> None:
    assert set(NEEDS) - described() == {("GET", "/v1/openapi.json"), ("GET", "/metrics")}


def test_a_route_nobody_declared_is_open_to_nobody_but_the_owner() -> None:
    need = found("POST", "/v1/something/new").need
    admin = Caller(user="ana", role=Role.ADMIN, way=Way.TOKEN)
    assert refusal(admin, need)
    assert not refusal(Caller(user="", role=Role.ADMIN, way=Way.OWNER), need)


@pytest.mark.parametrize(
    ("method", "path", "need", "ref"),
    [
        ("GET", "/v1/jobs", Need.SEE, ""),
        ("HEAD", "/v1/jobs", Need.SEE, ""),
        ("POST", "/v1/jobs/cancel", Need.SUBMIT, ""),
        ("POST", "/v1/jobs/train/cancel", Need.ACT_ON_JOB, "train"),
        ("GET", "/v1/jobs/7/logs", Need.READ_JOB, "7"),
        ("GET", "/v1/runs/7.2", Need.READ_JOB, "7"),
        ("DELETE", "/v1/jobs/last", Need.ACT_ON_JOB, "last"),
        ("GET", "/v1/jobs/a/b/logs", Need.OWN, ""),
        ("GET", "/v1/jobs/7/logs\n", Need.OWN, ""),
    ],
)
def test_a_path_is_found_with_the_job_it_names(method: str, path: str, need: Need, ref: str) -> None:
    answer = found(method, path)
    assert (answer.need, answer.ref) == (need, ref)
