# SPDX-License-Identifier: Apache-2.0
"""Learning rates of tables: numbers, variables, and the schedules of Keras 3 and tf-keras."""

from __future__ import annotations

import math
import sys
from typing import Any

import tensorflow as tf

_FRAMEWORKS = ("keras", "tf_keras")
# In place of a framework, for a variable.
_VARIABLE = "tf.Variable"


def check(owner: str, rate: Any) -> Any:
    """Return a learning rate as it is stored: a float, a variable, or a schedule.

    Parameters
    ----------
    owner : str
        What the message calls its object.
    rate : float, tf.Variable, keras.Variable, LearningRateSchedule, or the dict that to_config returns for one of these

    Raises
    ------
    ValueError
        If it is none of these, or a number that is negative or not finite.
    """
    if isinstance(rate, dict):
        return _from_config(owner, rate)
    if isinstance(rate, (int, float)) and not isinstance(rate, bool) and math.isfinite(rate) and rate >= 0:
        return float(rate)
    if _is_variable(rate) or _framework_of_schedule(rate):
        return rate
    what = "a number of at least 0, a variable, or a LearningRateSchedule of Keras"
    raise ValueError(f"{owner}: learning_rate is {rate!r}, expected {what}")


def value_at(rate: Any, step: Any) -> tf.Tensor:
    """Return the learning rate of the update after `step` updates.

    Parameters
    ----------
    rate : what `check` returned
    step : callable
        Returns the number of updates so far, a scalar int64 tensor; called only for schedules.

    Returns
    -------
    Tensor [] float32
    """
    if _framework_of_schedule(rate):
        rate = rate(step())
    elif _is_variable(rate):
        rate = rate.value() if callable(rate.value) else rate.value
    return tf.cast(rate, tf.float32)


def to_config(rate: Any) -> Any:
    """Return the JSON value of a learning rate; a variable gives its present value, and is one again when loaded."""
    framework = _framework_of_schedule(rate)
    if framework:
        return {"framework": framework, "schedule": sys.modules[framework].saving.serialize_keras_object(rate)}
    return {"framework": _VARIABLE, "value": float(rate.numpy())} if _is_variable(rate) else rate


def _from_config(owner: str, config: dict[str, Any]) -> Any:
    framework = config.get("framework")
    if framework == _VARIABLE:
        with tf.init_scope():
            return tf.Variable(check(owner, config["value"]), trainable=False, name="learning_rate")
    if framework not in _FRAMEWORKS:
        raise ValueError(f"{owner}: learning_rate has framework {framework!r}, expected 'keras' or 'tf_keras'")
    if framework == "keras":
        import keras as module
    else:
        import tf_keras as module
    return module.saving.deserialize_keras_object(config["schedule"])


def _is_variable(rate: Any) -> bool:
    return isinstance(rate, tf.Variable) or (hasattr(rate, "assign") and hasattr(rate, "value"))


def _framework_of_schedule(rate: Any) -> str | None:
    """Return "keras" or "tf_keras" if `rate` is a schedule of it; none of the two is imported for that."""
    for name in _FRAMEWORKS:
        module = sys.modules.get(name)
        if module is not None and isinstance(rate, module.optimizers.schedules.LearningRateSchedule):
            return name
    return None
