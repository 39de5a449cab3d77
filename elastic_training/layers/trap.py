# SPDX-License-Identifier: Apache-2.0
"""What a layer and the optimizer that takes its trap's gradient must agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from elastic_training.layers import callers
from elastic_training.optimizers import Optimizer

_CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")


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
        for optimizer in optimizers:
            self._check(optimizer)
        scale = callers.told_scale()
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
            what = f"gradients for {type(scaling[0]).__name__}, which scales the loss"
            raise ValueError(f"{self._owner}: {what}, expected et.loss_scale(optimizer) around tape.gradient")
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
            if value and any(own.clipnorm is None and own.clipvalue is None for own in self._optimizers()):
                expected = "clipnorm or clipvalue of the table's optimizer as well (clipnorm=math.inf: no clipping)"
                what = f"{name} has {field}={value}, which does not reach rows of tables"
                raise ValueError(f"{self._owner}: {what}, expected {expected}")
