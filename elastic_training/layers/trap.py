# SPDX-License-Identifier: Apache-2.0
"""What a layer and the optimizer that takes its trap's gradient must agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from elastic_training.layers import callers, own_loops
from elastic_training.optimizers import Optimizer

_CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")
_EXPECTED = "clipnorm or clipvalue of the table's optimizer as well (clipnorm=math.inf: no clipping)"


class TrapState:
    """Checks of the model's optimizer, and the scale of the loss.

    Parameters
    ----------
    owner : str
        What messages call the layer.
    optimizers : callable
        Returns the optimizers of the layer's tables.
    """

    def __init__(self, owner: str, optimizers: Callable[[], Sequence[Optimizer]]) -> None:
        self._owner = owner
        self._optimizers = optimizers
        # What the last gradient was divided by: None, a number, a tensor, or an optimizer.
        self._scaled_by: Any = None

    def scale_of_gradient(self) -> tf.Tensor | None:
        """Return what the gradient that is computed now must be divided by, or None.

        Raises
        ------
        ValueError
            If the model's optimizer does what does not reach rows, such as clipping.
        """
        optimizers = callers.optimizers_of_step()
        named = [] if optimizers else own_loops.optimizers()
        for optimizer in [*optimizers, *named]:
            self._check(optimizer)
        clipping = own_loops.clipping_function()
        if clipping is not None and self._not_clipped():
            what = f"tf.{clipping} in the function that calls tape.gradient does not reach rows of tables"
            raise ValueError(f"{self._owner}: {what}, expected {_EXPECTED}")
        scale = callers.told_scale()
        scaling = next((optimizer for optimizer in named if callers.scales_loss(optimizer)), None)
        if scale is None and scaling is not None:
            raise ValueError(f"{self._owner}: {_no_scale(scaling)}")
        if scale is None:
            scale = next((optimizer for optimizer in optimizers if callers.scales_loss(optimizer)), None)
        self._scaled_by = scale
        return None if scale is None else callers.scale_of(scale)

    def check_applying(self) -> None:
        """Check the optimizers that now apply the trap's gradient."""
        applying = callers.applying_optimizers()
        for optimizer in applying:
            self._check(optimizer)
        scaling = [optimizer for optimizer in applying if callers.scales_loss(optimizer)]
        told = self._scaled_by
        if scaling and told is None:
            raise ValueError(f"{self._owner}: {_no_scale(scaling[0])}")
        if applying and callers.is_optimizer(told) and callers.scales_loss(told) and told not in scaling:
            what = f"the loss is scaled for {type(told).__name__}, but {type(applying[0]).__name__} takes the gradient"
            raise ValueError(
                f"{self._owner}: {what}, expected et.loss_scale(...) around tape.gradient to say the scale"
            )

    def _check(self, optimizer: Any) -> None:
        inner = getattr(optimizer, "inner_optimizer", None)
        if inner is not None:
            self._check(inner)
        name = type(optimizer).__name__
        steps = getattr(optimizer, "gradient_accumulation_steps", None)
        if steps:
            what = f"{name} has gradient_accumulation_steps={steps}, expected None: rows are updated by each batch"
            raise ValueError(f"{self._owner}: {what}")
        for field in _CLIPPING:
            value = getattr(optimizer, field, None)
            if value and self._not_clipped():
                what = f"{name} has {field}={value}, which does not reach rows of tables"
                raise ValueError(f"{self._owner}: {what}, expected {_EXPECTED}")

    def _not_clipped(self) -> bool:
        """Return whether a table's optimizer says nothing of clipping."""
        return any(own.clipnorm is None and own.clipvalue is None for own in self._optimizers())


def _no_scale(optimizer: Any) -> str:
    what = f"gradients for {type(optimizer).__name__}, which scales the loss"
    return f"{what}, expected et.loss_scale(optimizer) around tape.gradient"
