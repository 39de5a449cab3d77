# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the library of ops, once per process."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import tensorflow as tf

_NAME = "libelastic_training.so"


def library_path() -> Path:
    """Return the library that ELASTIC_TRAINING_LIBRARY names, or the one beside this package.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    """
    named = os.environ.get("ELASTIC_TRAINING_LIBRARY")
    path = Path(named) if named else Path(__file__).resolve().parent / _NAME
    if not path.is_file():
        source = "ELASTIC_TRAINING_LIBRARY names" if named else "the package has"
        raise FileNotFoundError(f"{path}: {source} no such file; build it with 'make lib', or install the wheel")
    return path


class _Ops:
    """The ops of a library; one that it lacks is an error that says how to get it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._module = tf.load_op_library(str(path))

    def __getattr__(self, name: str) -> Any:
        op = getattr(self._module, name, None)
        if op is None:
            raise RuntimeError(
                f"{self._path}: has no op {name!r}, because it is older than this package; run 'make lib'"
            )
        setattr(self, name, op)
        return op


@functools.cache
def ops() -> Any:
    """Return the ops, by their names in Python: `elastic_table_lookup` and the others, which `src/ops` describes."""
    return _Ops(library_path())
