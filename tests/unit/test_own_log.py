"""The daemon's own log as JSON lines: one object per record, whatever is in it."""

import json
import logging
import sys

from swell.own_log import JsonLines


def record(message: str, *args: object) -> logging.LogRecord:
    made = logging.LogRecord("swell.x", logging.WARNING, __file__, 1, message, args, None)
    made.created = 1_700_000_000.25
    return made


def test_a_record_is_one_line() -> None:
    line = JsonLines().format(record("run %s:\nno “answer”", "7.2"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "swell.x",
        "message": "run 7.2:\nno “answer”",
    }


def test_an_exception_goes_along_in_the_same_line() -> None:
    found = record("it failed")
    try:
        raise ValueError("of that kind")
    except ValueError:
        found.exc_info = sys.exc_info()
    line = JsonLines().format(found)
    assert "\n" not in line
    assert "ValueError: of that kind" in json.loads(line)["exception"]
