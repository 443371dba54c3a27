"""Tab, as shells ask for it: verbs, options, jobs and policies."""

import shutil
import subprocess

import pytest

from integration.cli.conftest import Shell


def offered(sh: Shell, shell: str, *words: str) -> list[str]:
    """What the shell would offer for the last of these words."""
    sh.env |= {"_SWELL_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(("swell", *words))}
    sh.env["COMP_CWORD"] = str(len(words))
    try:
        lines = sh.as_program().splitlines()
    finally:
        for name in ("_SWELL_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
            del sh.env[name]
    words_offered = [line.partition(",")[2] for line in lines] if shell == "bash" else lines[1::3]
    return [word for word in words_offered if word]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_verbs_options_jobs_and_policies(sh: Shell, shell: str) -> None:
    sh("run", "--gpus", 0, "--name", "trained-here", "--", "true")
    assert offered(sh, shell, "sub") == ["submit"]
    assert "--follow" in offered(sh, shell, "logs", "--f")
    assert offered(sh, shell, "logs", "trained-h") == ["trained-here"]
    assert "1" in offered(sh, shell, "show", "1")
    assert "elastic-fifo" in offered(sh, shell, "policy", "elastic-f")
    assert offered(sh, shell, "run", "--priority", "h") == ["high"]
    assert offered(sh, shell, "run", "--launcher", "per") == ["per-node", "per-gpu"]
    assert offered(sh, shell, "priority", "trained-here", "u") == ["urgent"]


def test_without_a_daemon_nothing_is_offered_and_nothing_said(alone: Shell) -> None:
    assert offered(alone, "bash", "logs", "x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_what_a_shell_loads_is_valid(sh: Shell, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    sh.env["_SWELL_COMPLETE"] = f"{shell}_source"
    script = sh.as_program()
    del sh.env["_SWELL_COMPLETE"]
    assert "_SWELL_COMPLETE" in script
    subprocess.run([program, "-n"], input=script.encode(), check=True)
