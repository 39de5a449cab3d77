# SPDX-License-Identifier: Apache-2.0
"""TFRA as a contestant: a process in an environment of its own, which computes when it is told to."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from load_tests._programs import ROOT, ProgramError

__all__ = ["PYTHON", "Tfra"]

PYTHON = Path(os.environ.get("ELASTIC_TFRA_PYTHON", ROOT / ".venv-tfra" / "bin" / "python"))
_SCRIPT = ROOT / "load_tests" / "peers" / "tfra_rows.py"


class Tfra:
    """A table of TFRA with `keys` rows; `absent` says why there is none.

    Parameters
    ----------
    keys : int
    batch : int
        Number of rows of a lookup or a step.
    """

    def __init__(self, keys: int, batch: int) -> None:
        self.absent: str | None = None
        self.found: dict[str, Any] = {}
        self._process: subprocess.Popen[str] | None = None
        if not PYTHON.is_file():
            self.absent = f"{PYTHON}: not found; `make bench-elastic` installs it"
            return
        # Its Keras is tf-keras, as TFRA needs, and none of this process's packages.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        self._process = subprocess.Popen(
            [str(PYTHON), str(_SCRIPT), str(keys), str(batch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            self.found = self._answer()
        except ProgramError as error:
            # An environment that was only half installed is a missing peer, not a fault of what is measured.
            self.absent = str(error)

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise ProgramError("tfra_rows", self._process.wait(), self._process.stderr.read())

    def rate(self, what: str, seconds: float) -> float:
        """Measure "lookup" or "step" for `seconds` of its CPU time; return rows per CPU-second."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["rate"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
