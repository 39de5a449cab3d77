# SPDX-License-Identifier: Apache-2.0
"""What a training loop of the user will do with the gradient that it asks for.

Rows are updated while `tape.gradient` runs, so what happens to gradients later comes too late. The function that calls
it usually names its optimizer and the functions that clip. They are read from its frame, to refuse what does not reach
rows before any row is written.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import tensorflow as tf

from elastic_training.layers import callers

_GRADIENT = tf.GradientTape.gradient.__code__
_TENSORFLOW = str(Path(tf.__file__).parent.parent / "tensorflow")
# clip_by_value is left out: loops use it for predictions as well.
_CLIPPING = ("clip_by_global_norm", "clip_by_norm", "clip_by_average_norm")
# What is not a function of its own: other functions in a script do something else.
_EXPRESSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"}
_APPLYING = {"apply", "apply_gradients", "minimize"}


def _caller() -> FrameType | None:
    """Return the frame of the function that calls the innermost `tape.gradient`, past those of AutoGraph."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not _GRADIENT:
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename.startswith(_TENSORFLOW):
        frame = frame.f_back
    return frame


@functools.lru_cache(maxsize=256)
def _names(code: CodeType) -> frozenset[str]:
    """Return the names that a function uses, in its comprehensions and lambdas too."""
    inner = (value for value in code.co_consts if isinstance(value, CodeType) and value.co_name in _EXPRESSIONS)
    return frozenset(code.co_names).union(code.co_freevars, *map(_names, inner))


def clipping_function() -> str | None:
    """Return the name of a function of TensorFlow for clipping that the caller of `tape.gradient` uses, or None."""
    frame = _caller()
    names = frozenset() if frame is None else _names(frame.f_code)
    return next((name for name in _CLIPPING if name in names), None)


def optimizers() -> list[Any]:
    """Return the optimizers of Keras that the caller of `tape.gradient` names, if it applies gradients."""
    frame = _caller()
    if frame is None:
        return []
    names = _names(frame.f_code)
    if not names & _APPLYING:
        return []
    found = [value for value in _values(frame, names) if callers.is_optimizer(value)]
    return list({id(value): value for value in found}.values())


def _values(frame: FrameType, names: frozenset[str]) -> Iterator[Any]:
    """Yield what the names in a function stand for: variables, and attributes of variables (`self.optimizer`)."""
    seen = [*frame.f_locals.values(), *(frame.f_globals[name] for name in names if name in frame.f_globals)]
    for value in seen:
        yield value
        # Attributes of modules are not those of a loop, and asking a module may import it.
        attributes = None if isinstance(value, ModuleType) else getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            yield from (attributes[name] for name in names if name in attributes)
