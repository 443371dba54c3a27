"""The daemon's own log: daemon.log in its home, and standard error on a terminal or where it is asked for. As text, or
as one JSON object per line for programs that collect logs. Called by `serve`, once."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from swell.home import open_private

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """`{"time": "2026-01-31T12:00:00.000Z", "level": "INFO", "logger": …, "message": …}`, and `exception` if any."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_to(path: Path, *, as_json: bool, to_stderr: bool) -> None:
    os.close(open_private(path))
    handlers: list[logging.Handler] = [logging.FileHandler(path, encoding="utf-8")]
    if to_stderr or sys.stderr.isatty():
        handlers.append(logging.StreamHandler())
    formatter = JsonLines() if as_json else logging.Formatter(TEXT)
    for handler in handlers:
        handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=handlers)
    for chatty in ("uvicorn.access", "httpx2", "asyncssh"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
