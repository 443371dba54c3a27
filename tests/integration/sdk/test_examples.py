"""The examples that need no framework: job files that are read, scripts that run, stop and resume."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import STOPPED, Attempts
from integration.sdk.stable import Stable
from swell.core.job import JobSpec
from swell.core.progress import groups_of, read_line, seen_of
from swell.core.progress_track import Track, finish, follow, marked, report
from swell.jobfile.expand import expand
from swell.jobfile.read import read_documents
from swell.sdk import ship

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
JOB_FILES = sorted(EXAMPLES.glob("*/job.yaml"))


def spec_of(name: str) -> JobSpec:
    (document,) = read_documents((EXAMPLES / name / "job.yaml").read_text())
    (spec,) = expand(document)
    return spec


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.parent.name)
def test_every_job_file_is_a_job_and_its_script_is_there(path: Path) -> None:
    spec = spec_of(path.parent.name)
    line = " ".join(spec.command)
    scripts = re.findall(r"[\w./-]+\.(?:py|sh)\b", line)
    assert scripts, line
    assert all((path.parent / script).is_file() for script in scripts)


def test_there_is_an_example_for_each_framework() -> None:
    assert {path.parent.name for path in JOB_FILES} >= {
        "guide",
        "horovod",
        "lightning",
        "numpy",
        "parameter-server",
        "plain-script",
        "pytorch-ddp",
        "tensorflow",
    }


def test_the_parameter_server_is_stopped_resized_and_resumed(tmp_path: Path) -> None:
    sdk = ship.ship(tmp_path / "sdk")
    script = EXAMPLES / "parameter-server" / "train.py"
    with (
        Stable(sys.executable, ["numpy", "swell.sdk.session", "http.client", "argparse"], [sdk]) as stable,
        fake_daemon() as daemon,
    ):
        spec = spec_of("parameter-server")
        job = Attempts(stable=stable, daemon=daemon, spec=spec, script=script, home=tmp_path, sdk=sdk)
        for workers in (1, 3):
            job.start(workers, arguments=["--pause-s", "0.01"])
            job.wait_until_begun()
            time.sleep(0.2)
            job.ask_to_stop()
            assert job.ended() == [STOPPED] * workers + [0], "workers stop, the server goes when they have gone"
        job.start(2, arguments=[])
        assert job.ended() == [0, 0, 0], job.log(0)
    seen = re.findall(r"epoch (\d+) loss (\S+) workers (\d)", "\n".join(job.lines()))
    assert [int(epoch) for epoch, _, _ in seen] == list(range(30))
    assert float(seen[-1][1]) < 0.01 * float(seen[0][1]), "it learns"


def test_the_plain_scripts_log_is_understood(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "CHECKPOINTS": str(tmp_path), "EPOCH_S": "0"}
    script = str(EXAMPLES / "plain-script" / "train.sh")
    done = subprocess.run([script], env=env, capture_output=True, text=True, check=True)
    patterns = [re.compile(text) for text in spec_of("plain-script").progress_patterns]
    track, ended = Track(), []
    for at_s, line in enumerate(done.stdout.splitlines()):
        groups = groups_of(line, patterns)
        seen = seen_of(groups) if groups is not None else read_line(line)
        if seen is not None:
            track = follow(track, seen, float(at_s))
        if (news := report(track)) is not None:
            ended.append(news)
            track = marked(track)
    last = finish(track, 10.0)
    assert last is not None
    assert [epoch.done for epoch in ended] == [1, 2, 3, 4]
    assert (last.done, track.total) == (5, 5)
    assert [epoch.metrics["error"] for epoch in [*ended, last]] == [0.8, 0.7, 0.6, 0.5, 0.4]
