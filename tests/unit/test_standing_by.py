"""What a daemon refuses before it takes over from one on another machine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from swell.config import Config, ConfigError, load_config
from swell.core import events as ev
from swell.core.errors import Conflict
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import State
from swell.standing_by import check_machine


def running_on(executor: str) -> State:
    state = State()
    apply(state, ev.NodeObserved(node=Node(name="n", gpus=(Gpu(index=0),), cpus=2, executor=executor), at_s=0.0))
    apply(state, ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("x",)), at_s=1.0))
    allocation = Allocation(parts=(Part(node="n", gpus=(0,)),))
    apply(state, ev.RunPlanned(run=RunId(1, 1), allocation=allocation, at_s=2.0))
    return state


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "active.json").write_text(json.dumps({"url": "http://a:1", "machine": "elsewhere"}))
    return replace(Config(), home=tmp_path / "home", shared=str(tmp_path))


def test_never_takes_over_what_runs_on_another_machine_itself(config: Config) -> None:
    with pytest.raises(Conflict, match="jobs 1 run on elsewhere itself"):
        check_machine(config, lambda: running_on("local"))


def test_takes_over_what_runs_over_ssh_and_what_waits(config: Config) -> None:
    check_machine(config, lambda: running_on("ssh"))
    check_machine(config, State)


def test_takes_over_on_the_same_machine(config: Config) -> None:
    config.active_file.unlink()
    check_machine(config, lambda: running_on("local"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"standby": True}, "postgresql"),
        ({"standby": True, "database": "postgresql://x/y"}, "--shared"),
        ({"shared": "somewhere"}, "absolute"),
    ],
)
def test_a_standby_that_cannot_work_is_refused_with_what_it_needs(
    tmp_path: Path, options: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(tmp_path, options)
