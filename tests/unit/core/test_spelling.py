"""One wording for names that do not exist, wherever they were written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from swell.cli.main import swell
from swell.config import load_config
from swell.core.errors import SwellError
from swell.core.spelling import instead_of
from swell.jobfile.expand import expand
from swell.placement.registry import placer_named
from swell.policy.registry import check_options, policy_named


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("prot", "did you mean port?"),
        ("PORT", "did you mean port?"),
        ("branch_and_bound", "did you mean branch-and-bound?"),
        ("xyzzy", "there are: port, branch-and-bound"),
        (7, "there are: port, branch-and-bound"),
    ],
)
def test_the_nearest_name_else_all_of_them(name: object, says: str) -> None:
    assert instead_of(name, ["port", "branch-and-bound"]) == says


def test_where_there_are_none_that_is_said() -> None:
    assert instead_of("x", ()) == "there are: none"


def configured(text: str) -> None:
    home = Path("home")
    home.mkdir()
    (home / "config.yaml").write_text(text)
    load_config(home)


def typed(*args: str) -> None:
    raise SwellError(CliRunner().invoke(swell, args).output)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (lambda: expand({"comand": "x"}), "did you mean command?"),
        (lambda: expand({"command": "x", "launcher": "torchun"}), "did you mean torchrun?"),
        (lambda: expand({"command": "x", "launcher": "7zip"}), "there are: single, per-node,"),
        (lambda: configured("prot: 7000"), "did you mean port?"),
        (lambda: configured("xyzzy: 7000"), "there are: home, host, advertise,"),
        (lambda: policy_named("swel"), "did you mean swell?"),
        (lambda: placer_named("hungaran"), "did you mean hungarian?"),
        (lambda: check_options("fifo", {"xyzzy": 1}), "policy fifo has no options, so no 'xyzzy'"),
        (lambda: typed("cancle", "1"), "did you mean cancel?"),
        (lambda: typed("xyzzy"), "there is no verb 'xyzzy'; `swell help` lists them"),
        (
            lambda: typed("sim", "run", "--out", "o", "--workload", __file__, "--format", "polux"),
            "did you mean pollux?",
        ),
    ],
)
def test_every_place_says_it_in_the_same_words(
    written: Callable[[], object], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SwellError) as caught:
        written()
    assert says in " ".join(str(caught.value).split())
