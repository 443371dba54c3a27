"""A process that somebody kills: what becomes of its job."""

import json

from integration.cli.conftest import Shell


def test_a_job_with_checkpoints_goes_on_and_one_without_fails(sh: Shell) -> None:
    line = 'if [ -e "$SWELL_CHECKPOINT_DIR/begun" ]; then echo goes on; else mkdir -p "$SWELL_CHECKPOINT_DIR"; '
    line += 'touch "$SWELL_CHECKPOINT_DIR/begun"; kill -9 $$; fi'
    (sh.work / "job.yaml").write_text(json.dumps({"command": line, "gpus": 0, "checkpoint_dir": "c", "backoff": 0.1}))
    job = json.loads(sh("submit", "--json", "job.yaml").out)["ids"][0]
    assert sh("logs", "-f", job).out == "goes on\n"
    shown = sh("show", job).out
    assert "1 killed run" in shown
    assert "failure" not in shown
    failed = sh("run", "--gpus", 0, "--", "kill -9 $$", code=1)
    assert "SIGKILL" in failed.err
