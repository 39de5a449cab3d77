# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from serving_proxy.system.logs import JsonFormatter


def record(**extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "a.b", "levelno": 20, "levelname": "INFO", "msg": "x %s", "args": ("y",), **extra}
    )
    return made


def test_a_log_line_is_one_json_object() -> None:
    line = json.loads(JsonFormatter().format(record(model="m", version=None, path=Path("/x"), _ray_timestamp_ns=1)))
    assert line["time"].endswith("Z")
    del line["time"]
    assert line == {"level": "info", "logger": "a.b", "message": "x y", "model": "m", "path": "/x"}


def test_a_traceback_stays_on_its_line() -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        text = JsonFormatter().format(record(exc_info=sys.exc_info()))
    assert "\n" not in text
    assert "ZeroDivisionError" in json.loads(text)["trace"]
