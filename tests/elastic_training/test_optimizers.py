# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import elastic_training as et
from elastic_training import learning_rates
from elastic_training.optimizers import Optimizer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: et.SGD(-1), "SGD: learning_rate is -1, expected a number of at least 0, a variable, or"),
        (lambda: et.SGD(math.nan), "learning_rate is nan"),
        (lambda: et.SGD("fast"), "learning_rate is 'fast'"),
        (lambda: et.Adam(beta_2=1.0), "Adam: beta_2 is 1.0, expected a number of at least 0 and at most"),
        (lambda: et.Adagrad(initial_accumulator=-0.1), "initial_accumulator is -0.1"),
        (lambda: et.Ftrl(learning_rate_power=0.5), "learning_rate_power is 0.5"),
        (lambda: et.GroupAdagrad(0.1, l21=-1), "GroupAdagrad: l21 is -1"),
        (lambda: et.GroupAdagrad(0.1, release_after=1.5), "release_after is 1.5, expected an integer"),
        (lambda: et.SGD(0.1, clipnorm=0), "SGD: clipnorm is 0, expected a number above 0, or None"),
        (lambda: et.SGD(0.1, clipnorm=1, clipvalue=1), "SGD: clipvalue and clipnorm, expected at most one"),
    ],
)
def test_wrong_value_is_named(make: Callable[[], Optimizer], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def _rate(value: Any, step: int) -> float:
    return float(learning_rates.value_at(et.SGD(value).learning_rate, lambda: tf.constant(step, tf.int64)))


def test_learning_rate_is_a_number_a_variable_or_a_schedule() -> None:
    variable, keras_variable = tf.Variable(0.5), keras.Variable(0.5)
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([10], [0.5, 0.25])
    for rate in (0.5, variable, keras_variable, schedule):
        assert _rate(rate, 10) == 0.5
    variable.assign(0.25)
    keras_variable.assign(0.25)
    for rate in (variable, keras_variable, schedule):
        assert _rate(rate, 11) == 0.25


def test_variable_is_one_again_after_loading_with_its_present_value() -> None:
    for variable in (tf.Variable(0.5), keras.Variable(0.5)):
        variable.assign(0.25)
        loaded = Optimizer.from_config(json.loads(json.dumps(et.SGD(variable).to_config())))
        assert loaded == et.SGD(tf.Variable(0.25))
        loaded.learning_rate.assign(0.125)
        assert float(learning_rates.value_at(loaded.learning_rate, lambda: 0)) == 0.125


def test_optimizer_is_found_by_its_name() -> None:
    assert Optimizer.of("Adagrad") == et.Adagrad()
    assert et.Adagrad() != et.GroupAdagrad()
    assert et.Adagrad(0.1) != et.Adagrad(0.2)


def test_infinite_norm_states_that_rows_are_not_clipped() -> None:
    assert not et.SGD(0.1, clipnorm=math.inf).clips
    assert et.SGD(0.1, clipnorm=1.0).clips
