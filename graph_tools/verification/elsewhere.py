# SPDX-License-Identifier: Apache-2.0
"""Run models in a separate process, in which TensorFlow has the other setting of oneDNN."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from graph_tools.graph.op_library import loaded_libraries
from graph_tools.model import Model, Signature
from graph_tools.verification.request import Request
from graph_tools.verification.runner import Answer, Answered, LoadError
from graph_tools.verification.settings import VARIABLE

#: Module that this process runs.
WORKER = "graph_tools.verification.worker"
# Number of requests per message.
_BATCH = 16


@dataclass(frozen=True)
class Place:
    """The parts of a model that a runner needs: its path, and the tensors of its signatures."""

    path: Path
    kind: str
    tags: tuple[str, ...]
    signatures: Mapping[str, Signature]


class Elsewhere:
    """A process in which TensorFlow has another setting of oneDNN.

    It runs one model after the other, because TensorFlow takes seconds to start.

    Parameters
    ----------
    onednn : bool
        If True, TensorFlow computes its products with oneDNN in that process.
    """

    def __init__(self, onednn: bool) -> None:
        environment = os.environ | {
            VARIABLE: str(int(onednn)),
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                # What was written to a process that has ended is still in the buffer.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, *message: Any) -> Any:
        """Send a message, and return the answer.

        Raises
        ------
        LoadError
            The process ended, or TensorFlow cannot load the model there.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
            said, found = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise LoadError(f"the process that runs it with the other setting of {VARIABLE} ended") from error
        if said == "error":
            raise LoadError(found)
        return found


class ElsewhereRunner:
    """Runs requests in another process.

    Parameters
    ----------
    process : Elsewhere
        It has no other model until this one is closed.
    model : Model
    runner : str
        Name of the runner: `V2Runner` or `SessionRunner`.

    Raises
    ------
    LoadError
        The process ended, or TensorFlow cannot load the model there.
    """

    def __init__(self, process: Elsewhere, model: Model, runner: str) -> None:
        self._process = process
        place = Place(model.path.absolute(), model.kind, model.tags, model.signatures)
        self.how = process.ask("load", runner, place, [str(library) for library in loaded_libraries()])

    def run(self, requests: Iterable[Request], answered: Answered) -> list[Answer]:
        asked = list(requests)
        answers: list[Answer] = []
        for begin in range(0, len(asked), _BATCH):
            for answer in self._process.ask("run", asked[begin : begin + _BATCH]):
                answers.append(answer)
                answered()
        return answers

    def close(self) -> None:
        # If the process has ended, so has its model.
        with contextlib.suppress(LoadError):
            self._process.ask("close")
