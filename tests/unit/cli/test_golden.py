"""Tables and texts as people see them, letter by letter: in narrow and wide terminals, and in a pipe.

`SWELL_GOLDEN=write pytest tests/unit/cli/test_golden.py` writes them anew: read the difference before you commit it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from swell.cli import common, explain, history, ls, show, stats, up, update

GOLDEN = Path(__file__).parent / "golden"
HELD = {"held": 2, "min": 1, "max": 4, "share": False}
NONE = {"held": 0, "min": 1, "max": 4, "share": False}


def job(number: int, name: str, state: str, **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": number,
        "name": name,
        "user": "ada",
        "team": "",
        "state": state,
        "paused": False,
        "priority": 0,
        "gpus": NONE,
        "progress": {"unit": "epoch", "epochs_done": 0, "epochs_total": 90},
        "eta_s": None,
        "starts_s": None,
        "submitted_s": 0.0,
        "restart_cost_s": 12.0,
        "restarts_s": 24.0,
        "where": [],
        "why": "",
        "ended_s": None,
        "waited_s": 75.0,
        "ran_s": 4000.0,
        "lost_s": 0.0,
        "failures": 0,
        "kills": 0,
        "attempts": 3,
        "preemptions": 0,
        "resizes": 2,
        "migrations": 0,
        "files": "abcdef0123",
        "metrics": {"loss": 0.125},
        "message": "",
        "gpu_s": 7200.0,
        "exit_code": None,
        "exit_reason": None,
        "started_s": None,
        "outputs": None,
        "files_on": "node-17",
        "copy": {"epoch": 17, "at_s": 7000.0, "bytes": 7340032, "problem": "", "shared_by": []},
        "rewound": "set back to epoch 17: gpu1 has its newer files; the latest copy of its checkpoint is of 17",
        "spec": {
            "outputs": ["results/"],
            "outputs_to": "/home/ada/resnet",
            "command": ["python", "train.py"],
            "workdir": "",
            "env": {"LR": "0.1"},
            "shell_env": {"PATH": "/opt/env/bin:/usr/bin", "VIRTUAL_ENV": "/opt/env"},
            "python": "",
        },
    }
    return {**base, **more}


ENDED = {
    "ended_s": 7000.0,
    "submitted_s": 1000.0,
    "exit_code": 1,
    "why": "exit code 1: RuntimeError: CUDA error: an illegal memory access was encountered",
}
WAITS = "job 1 (resnet50-imagenet) keeps 1 GPU until it ends: it neither uses the swell library nor names a directory"
JOBS = [
    job(
        1,
        "resnet50-imagenet-baseline-with-a-long-name",
        "running",
        gpus=HELD,
        where=["node-17:0,1"],
        why="grew to 2",
        eta_s=[8600.0, 8700.0],
    ),
    job(12, "eval", "failed", **ENDED),
    job(123, "bert", "queued", why=WAITS, starts_s=[9000.0, 12000.0], eta_s=[20000.0, 30000.0]),
]
RUN = {
    "id": "1.1",
    "gpus": 2,
    "where": ["node-17:0,1"],
    "started_s": None,
    "ended_s": None,
    "exit_reason": None,
    "exit_code": None,
    "stop": None,
    "message": "",
    "reason": "grew to 2",
    "lost_s": 0.0,
}
SIZES = {
    **{kind: {"bytes": 2 << 20} for kind in ("working_copy", "logs")},
    "checkpoints": {"path": "/home/ada/.swell/checkpoints/1", "files": 3, "bytes": 2 << 20},
}
SNAPSHOT = {"files": 12, "bytes": 48 << 10, "own_bytes": 4 << 10}
KEPT = {"job": 1, "directory": "/home/ada/.swell/work/1", "snapshot": SNAPSHOT, "submitted": "", **SIZES}
EXPLAINED = {
    "job": 123,
    "summary": "needs 1 GPU, free for it: 0",
    "sentences": ["queued for 75 s with priority 10", "needs 1 GPU, free for it: 0", WAITS],
    "ahead": [{"job": 9, "name": "urgent", "user": "", "state": "running", "gpus": 3, "priority": 20}],
    "ahead_count": 1,
    "starts": "starts in about 2 h",
    "advice": "ask for 1 GPU less",
    "missing": "",
    "trouble": "",
}


SPEED = {
    "family": "resnet50",
    "reference_type": "V100",
    "source": "measured",
    "confidence": 0.7,
    "curves": {"V100": [(1, 1.0), (2, 1.85), (3, 2.6), (4, 3.1)]},
    "points": [
        {"gpus": 1, "gpu_type": "V100", "epochs": 1, "epoch_s": 600.0},
        {"gpus": 2, "gpu_type": "V100", "epochs": 12, "epoch_s": 324.0},
    ],
}
TIMELINE = {
    "now_s": 8000.0,
    "truncated": False,
    "spans": [{"from_s": 4400.0, "where": [("node-17", [0, 1])]}],
}


class Client:
    def get(self, path: str, **_: object) -> Any:
        answers = {
            "/explain": EXPLAINED,
            "/runs": {"runs": [RUN]},
            "/files": KEPT,
            "/speed": SPEED,
            "/series": {"series": {"train_loss": [(float(n), 3.0 / (1 + n)) for n in range(40)]}},
            "/nodes": {"nodes": [{"gpus_total": 4}]},
            "/timeline": TIMELINE,
        }
        return next(answer for end, answer in answers.items() if path.endswith(end))

    def job(self, _: object) -> Any:
        return dict(JOBS[0])

    def jobs(self, *, state: str, **_: object) -> Any:
        groups = {"running": JOBS[:1], "ended": JOBS[1:2], "queued": JOBS[2:], "all": JOBS}
        return groups[state], None


CASES = {
    "ls": (ls.ls, []),
    "show": (show.show, ["1"]),
    "explain": (explain.explain, ["123"]),
    "usage": (up.up, ["--gpus", "many"]),
    "history": (history.history, ["--since", "2h"]),
    "history-by-user": (history.history, ["--since", "2h", "--by", "user"]),
    "stats": (stats.stats, ["--since", "2h"]),
    "update": (update.update, ["1", "image=x"]),
}


@pytest.mark.parametrize("columns", [80, 200, 0], ids=["80", "200", "pipe"])
@pytest.mark.parametrize("case", CASES)
def test_what_people_see(case: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, arguments = CASES[case]
    monkeypatch.setattr("time.localtime", lambda *_: (2026, 11, 17, 3, 0, 0, 1, 321, 0))
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
        terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr(common, "sys", terminal)
    monkeypatch.setattr("time.time", lambda: 8000.0)
    for module in (ls, show, explain, history, stats):
        monkeypatch.setattr(module, "client", lambda *_: Client())
    done = CliRunner().invoke(verb, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    said = done.output
    file = GOLDEN / f"{case}-{columns or 'pipe'}.txt"
    if os.environ.get("SWELL_GOLDEN") == "write":
        file.write_text(said, encoding="utf-8")
    assert said == file.read_text(encoding="utf-8")
    if columns and case in ("ls", "history", "history-by-user", "stats"):
        assert max(map(len, said.splitlines())) <= columns


def test_ids_are_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(common, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    lines = common.table(("ID", "NAME", "WHY"), [("1234567890", "n" * 50, "w" * 50)]).splitlines()
    assert lines[1].split()[0] == "1234567890"
