"""A daemon's own log, in the form and at the places that config.yaml names."""

import json
from pathlib import Path

from harness import daemon


def test_json_lines_in_the_file_and_on_standard_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("log_format: json\nlog_stderr: true\n")
    with daemon(home) as served:
        served.stop()
    for name in ("daemon.log", "serve.out"):
        lines = [json.loads(line) for line in (home / name).read_text().splitlines()]
        assert any("serves http://127.0.0.1:" in line["message"] for line in lines), name
        assert {frozenset(line) for line in lines} == {frozenset({"time", "level", "logger", "message"})}


def test_text_in_the_file_alone_unless_configured(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as served:
        served.stop()
    assert " INFO swell.serve: swell " in (tmp_path / "home" / "daemon.log").read_text()
    assert not (tmp_path / "home" / "serve.out").read_text()
