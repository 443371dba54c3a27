"""A job runs as its user would run it: with the Python and the variables of the shell it was submitted from."""

import json
import sys
import venv
from pathlib import Path

import pytest

from integration.cli.conftest import Shell


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a module of its own, as `pip install` would leave it."""
    place = tmp_path_factory.mktemp("envs") / "mine"
    venv.create(place, with_pip=False, symlinks=True)
    site = next(place.glob("lib/python*/site-packages"))
    (site / "only_mine.py").write_text("")
    return place


def activated(sh: Shell, environment: Path) -> Shell:
    sh.env |= {"PATH": f"{environment}/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(environment)}
    return sh


PRINTS = "import only_mine, sys; print(sys.prefix)"


def test_the_python_of_an_active_environment_runs_it(sh: Shell, environment: Path) -> None:
    done = activated(sh, environment)("run", "--gpus", "0", "--", "python", "-c", PRINTS)
    assert done.out.strip() == str(environment)


def test_programs_on_the_path_of_the_shell_are_found_without_any_environment(sh: Shell, tmp_path: Path) -> None:
    tool = tmp_path / "tools" / "my-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    sh.env["PATH"] = f"{tool.parent}:/usr/bin:/bin"
    assert sh("run", "--gpus", "0", "--", "my-tool").out.strip() == "found"


def test_variables_are_taken_by_name_and_secrets_are_not_shown(sh: Shell) -> None:
    sh.env |= {"WANDB_PROJECT": "p", "KEY": "s3cret", "OTHER": "not asked for"}
    options = ("--env-from-shell", "WANDB_PROJECT", "--secret", "KEY")
    done = sh("run", "--gpus", "0", *options, "--", "echo $WANDB_PROJECT $KEY [$OTHER]")
    assert done.out.strip() == "p s3cret []"
    shown = sh("show", "last").out
    assert "WANDB_PROJECT=p" in shown
    assert "KEY=***" in shown
    assert "s3cret" not in shown
    assert "PATH=" in shown, "what it runs with is shown"


def test_a_variable_that_the_shell_does_not_have_is_said_at_submit(sh: Shell) -> None:
    said = sh("run", "--env-from-shell", "NOT_THERE", "--", "true", code=2).err
    assert "env_from_shell: NOT_THERE has no value" in said
    assert "shell you submit from" in said


def test_an_interpreter_is_chosen_for_commands_lines_and_scripts(sh: Shell, environment: Path) -> None:
    (sh.work / "prints.py").write_text(PRINTS)
    (sh.work / "job.yaml").write_text(f"script: prints.py\npython: {environment}\ngpus: 0\n")
    for command in (("python", "-c", PRINTS), (f"python3 -c '{PRINTS}'",)):
        done = sh("run", "--gpus", "0", "--python", environment, "--", *command)
        assert done.out.strip() == str(environment)
    job = json.loads(sh("submit", "--json", "job.yaml").out)["ids"][0]
    assert sh("logs", "-f", job).out.strip() == str(environment)
    assert f"python       {environment}" in sh("show", job).out


def test_the_daemons_own_python_is_not_the_jobs(sh: Shell) -> None:
    """The daemon of these tests runs in an environment of its own; this shell has none."""
    sh.env["PATH"] = "/usr/bin:/bin"
    done = sh("run", "--gpus", "0", "--", "echo $PATH; echo [$VIRTUAL_ENV]")
    assert done.out.splitlines() == ["/usr/bin:/bin", "[]"]
    assert sys.prefix not in done.out
