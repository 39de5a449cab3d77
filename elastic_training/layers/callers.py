# SPDX-License-Identifier: Apache-2.0
"""Who asks for a gradient, and who takes it: what a table must know that no argument carries.

The update of a table runs inside the backward pass, before the model's optimizer sees gradients. That optimizer may
have scaled the loss, may clip or accumulate. Keras passes none of this to layers, so it is read from the frames of the
callers, while a graph is traced or, in eager mode, at each step.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow as tf

_GRADIENT = tf.GradientTape.gradient.__code__
# The file of TensorFlow whose functions trace a tf.function.
_TRACING = "polymorphic_function/tracing_compilation.py"
_scales = threading.local()


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def sources_of_gradient() -> list[Any] | None:
    """Return what the innermost `tape.gradient` differentiates by (tensors and handles of variables), None outside."""
    for frame in _frames():
        if frame.f_code is _GRADIENT:
            sources: list[Any] = frame.f_locals["flat_sources"]
            return sources
    return None


def tape_in_function() -> bool:
    """Return whether a gradient tape records that was opened within the innermost tf.function that is being traced.

    A trace under a tape of its caller is used again without one, so it must not depend on the tape.
    """
    for frame in _frames():
        if frame.f_code.co_filename.endswith(_TRACING):
            return False
        if any(isinstance(value, tf.GradientTape) and value._recording for value in frame.f_locals.values()):
            return True
    return True


def _keras_modules() -> list[Any]:
    return [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]


def optimizers_of_step() -> list[Any]:
    """Return the optimizers that compute gradients now: of the Keras model whose train_step runs, or called for it.

    An optimizer that scales the loss wraps another one, so there may be two.
    """
    found: list[Any] = []
    for frame in _frames():
        owner = frame.f_locals.get("self") if frame.f_code.co_argcount else None
        if is_optimizer(owner):
            found.append(owner)
        elif frame.f_code.co_name == "train_step" and any(
            isinstance(owner, module.Model) for module in _keras_modules()
        ):
            optimizer = getattr(owner, "optimizer", None)
            return found if optimizer is None else [*found, optimizer]
    return found


def applying_optimizers() -> list[Any]:
    """Return the optimizers whose `apply` runs, the innermost first."""
    owners = [frame.f_locals.get("self") for frame in _frames() if frame.f_code.co_name == "apply"]
    return [owner for owner in owners if is_optimizer(owner)]


def is_optimizer(value: Any) -> bool:
    kinds = [module.optimizers.Optimizer for module in _keras_modules()]
    if "tf_keras" in sys.modules:
        kinds.append(sys.modules["tf_keras"].optimizers.legacy.Optimizer)
    return isinstance(value, tuple(kinds))


@contextmanager
def loss_scale(scale: Any) -> Iterator[None]:
    """Tell tables by how much the loss is scaled whose gradient is computed in this block.

    Keras' `fit` needs none of this. In a training loop of your own:

        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(loss_of(model(x, training=True), y))
        with et.loss_scale(optimizer):
            gradients = tape.gradient(loss, model.trainable_variables)

    Parameters
    ----------
    scale : float, scalar tensor, or optimizer of Keras
        Gradients of rows are divided by it, or by what the optimizer multiplies losses with.
    """
    stack = _scales.__dict__.setdefault("stack", [])
    stack.append(scale)
    try:
        yield
    finally:
        stack.pop()


def told_scale() -> Any:
    """Return what the innermost `loss_scale` block was given, or None."""
    stack = _scales.__dict__.get("stack")
    return stack[-1] if stack else None


def scales_loss(optimizer: Any) -> bool:
    """Return whether an optimizer expects gradients of a scaled loss."""
    if getattr(optimizer, "loss_scale_factor", None) is not None:
        return True
    return hasattr(optimizer, "get_scaled_loss") or type(optimizer).__name__ == "LossScaleOptimizer"


def scale_of(scale: Any) -> tf.Tensor:
    """Return the factor [] float32 of an optimizer or a number."""
    one = tf.ones([])
    if hasattr(scale, "get_scaled_loss"):
        return tf.cast(scale.get_scaled_loss(one), tf.float32)
    return tf.cast(scale.scale_loss(one) if is_optimizer(scale) else scale, tf.float32)
