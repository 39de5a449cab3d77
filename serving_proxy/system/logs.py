# SPDX-License-Identifier: Apache-2.0
"""Logs as lines of JSON on stderr."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}

_MOST_PLACES = 10_000


class JsonFormatter(logging.Formatter):
    """Formats one JSON object per line: time, level, logger, message, the fields of `extra`, and the trace."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line: dict[str, Any] = {
            "time": at,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # Libraries keep fields of their own in records, such as Ray's time.
        fields = {key: value for key, value in vars(record).items() if key not in _STANDARD and key[0] != "_"}
        line |= {key: value for key, value in fields.items() if value is not None}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Moderation(logging.Filter):
    """Limits how often the messages of one place are logged in a period, and logs how many were left out.

    If descriptors or disk space have run out, a program may try to log megabytes per second.

    Parameters
    ----------
    most : int
    period_s : float [s]
    """

    def __init__(self, most: int = 10, period_s: float = 10.0) -> None:
        super().__init__()
        self._most = most
        self._period_s = period_s
        # By place: start of its period, number of messages, and number of those that were left out.
        self._places: dict[tuple[str, int, str, int], tuple[float, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if record.levelno < logging.WARNING:
            return True
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        place = (record.name, record.lineno, error, record.levelno)
        now = time.monotonic()
        begun, count, left_out = self._places.get(place, (now, 0, 0))
        if now - begun >= self._period_s:
            begun, count = now, 0
            if left_out:
                record.left_out = left_out
                left_out = 0
        if len(self._places) > _MOST_PLACES:
            self._places.clear()
        written = count < self._most
        self._places[place] = (begun, count + 1, left_out + (not written))
        return written


def set_up(level: str = "INFO") -> None:
    """Send all logs of this process to stderr as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(Moderation())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # They log the URL of every request; that of a webhook is a secret.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # A line for each status request would be noise.
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
