# SPDX-License-Identifier: Apache-2.0
"""Run the process of `Elsewhere`: load models, one at a time, and run the requests that arrive on standard input."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any, BinaryIO, cast

from graph_tools.lean_start import leave_out_keras


def main() -> None:
    """Handle messages until standard input ends."""
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Text that libraries print must not mix with the results.
    os.dup2(2, 1)
    leave_out_keras()
    runner: Any = None
    while True:
        try:
            kind, *rest = pickle.load(asked)
        except EOFError:
            break
        if kind == "load":
            runner = _load_runner(answers, *rest)
        elif kind == "run":
            _send(answers, "answer", runner.run(rest[0], lambda: None))
        else:
            runner.close()
            runner = None
            _send(answers, "answer", None)
    if runner is not None:
        runner.close()


def _load_runner(answers: BinaryIO, name: str, place: Any, libraries: list[str]) -> Any:
    from graph_tools.errors import GraphToolsError
    from graph_tools.graph.op_library import load_libraries
    from graph_tools.model import Model
    from graph_tools.verification import runner

    try:
        load_libraries(libraries)
        loaded = getattr(runner, name)(cast(Model, place))
    except (GraphToolsError, runner.LoadError) as error:
        _send(answers, "error", str(error))
        return None
    _send(answers, "answer", loaded.how)
    return loaded


def _send(answers: BinaryIO, kind: str, found: Any) -> None:
    pickle.dump((kind, found), answers)
    answers.flush()


if __name__ == "__main__":
    main()
