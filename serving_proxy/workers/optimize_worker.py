# SPDX-License-Identifier: Apache-2.0
"""`python -m serving_proxy.workers.optimize_worker JSON`: one run of `graph-tools optimize`, with steps as JSON lines.

It runs at the lowest priority, or on the maintenance CPUs, and ends with the proxy. On SIGTERM it ends as on Ctrl-C and
leaves no incomplete files.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from serving_proxy.workers.low_priority import lower_priority

_SECONDS_BETWEEN = 0.2


class Lines:
    """Prints the progress as JSON lines, a few per second."""

    def __init__(self) -> None:
        self._step, self._done, self._unit = "", 0, ""
        self._total: int | None = None
        self._told = 0.0

    def begin(self, text: str, total: int | None = None, unit: str = "") -> None:
        """Begin a new step and print it."""
        self._step, self._done, self._total, self._unit = text, 0, total, unit
        self._tell()

    def advance(self, count: int) -> None:
        """Add to the count, and print it if the last line was some time ago."""
        self._done += count
        if time.monotonic() - self._told >= _SECONDS_BETWEEN:
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        print(
            json.dumps({"step": self._step, "done": self._done, "total": self._total, "unit": self._unit}), flush=True
        )


def main(text: str) -> int:
    """Optimize the model that `text` describes; return 0 if it worked, else 1 after a line with the error."""
    asked: dict[str, Any] = json.loads(text)
    lower_priority(asked["cpus"])
    from graph_tools import optimize
    from graph_tools.errors import GraphToolsError, VerificationError
    from graph_tools.json_data import write_json

    report = Path(asked["report"])
    try:
        found = optimize(
            asked["source"],
            asked["target"],
            precision=asked["precision"],
            table_store=asked["table_store"],
            requests=asked["requests"],
            live=asked["live"],
            progress=Lines(),
        )
        write_json(found.to_json(), report)
    except VerificationError as error:
        write_json(error.report, report)
        return _fail(str(error))
    except GraphToolsError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or asked['target']}: {error.strerror}, expected to read or write it")
    return 0


def _fail(message: str) -> int:
    print(json.dumps({"error": " ".join(message.split())}), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
