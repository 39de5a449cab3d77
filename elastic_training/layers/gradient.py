# SPDX-License-Identifier: Apache-2.0
"""The lookup whose gradient is the update.

A layer has one scalar weight, its trap: always zero, and only there so that gradients reach the layer. The gradient of
the trap is the token that the update op returns. It must depend on the update by data: with a control dependency alone,
Keras' `fit` would drop the update.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record

from elastic_training import learning_rates
from elastic_training._library import ops
from elastic_training.layers import callers
from elastic_training.layers.clipping import clip
from elastic_training.layers.observers import notify
from elastic_training.layers.trap import TrapState
from elastic_training.table import Table


@dataclass(frozen=True)
class Entry:
    """What one call looks up in one table.

    Attributes
    ----------
    keys : Tensor [n] int64 or string
    row_splits : Tensor [rows + 1] int64, or None
        Keys of row i are keys[row_splits[i]:row_splits[i + 1]]; None: each key is a row.
    combiner : str or None
        None if `row_splits` is.
    """

    table: Table
    keys: tf.Tensor
    row_splits: tf.Tensor | None
    combiner: str | None
    mask_zero: bool


@dataclass
class _Call:
    """The tensors that a lookup leaves to its update."""

    owner: str
    entries: Sequence[Entry]
    state: TrapState
    inputs: dict[str, Any]
    # What comes with the update of each table, [1] float32: the learning rate.
    hyper: list[tf.Tensor] = field(default_factory=list)
    # Graphs in which the gradient was taken; eager execution has one of its own.
    spent: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)

    def once(self) -> None:
        """Raise an error at the second gradient of the same lookup."""
        graph = tf.compat.v1.get_default_graph()
        if graph in self.spent:
            raise ValueError(
                f"{self.owner}: a second tape.gradient through the same lookup, expected one, because it updates rows; "
                "add the losses, or call the layer again"
            )
        self.spent.add(graph)


def look_up(owner: str, entries: Sequence[Entry], trap: Any, state: TrapState, training: bool | None) -> list[Any]:
    """Return the rows of each entry, Tensors [rows, dim] float32.

    Parameters
    ----------
    owner : str
        What messages call the layer.
    trap : tf.Variable or keras.Variable [] float32
    state : TrapState
        What the layer tells the optimizer that takes the trap's gradient.
    training : bool or None
        True counts keys, admits them, and makes gradients update rows. False writes nothing. None is True if a gradient
        tape watches the trap.
    """
    for entry in entries:
        notify(entry.table, entry.keys, entry.mask_zero)
    inputs = {
        "tables": [_in_graph(entry.table.handle) for entry in entries],
        "keys": [entry.keys for entry in entries],
        "row_splits": [_or_empty(entry.row_splits, tf.int64) for entry in entries],
        "weights": [tf.zeros([0]) for _ in entries],
        "combiners": [entry.combiner or "none" for entry in entries],
        "mask_zero": [entry.mask_zero for entry in entries],
    }
    call = _Call(owner, entries, state, inputs)
    value = tf.convert_to_tensor(trap)
    if not trap.trainable:
        training = False
    watched = training is None and record.should_record_backprop([value])
    if watched and not callers.tape_in_function():
        raise ValueError(
            f"{owner}: traced by tf.function under a gradient tape of its caller, "
            "expected the argument training=True or False, because the trace serves calls without a tape as well"
        )
    if training or watched:
        return _trained(call, trap, value)
    if training is None and tf.inside_function():
        return _not_trained(call, value)
    return _rows(call, training=False)[0]


def _or_empty(tensor: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
    return tf.zeros([0], dtype) if tensor is None else tensor


def _rows(call: _Call, *, training: bool) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
    """Return rows, their numbers in the table, and the first position of each key."""
    outputs, places, firsts = ops().elastic_table_lookup(
        **call.inputs,
        training=training,
        dims=[entry.table.settings.dim for entry in call.entries],
    )
    return list(outputs), list(places), list(firsts)


def _in_graph(handle: tf.Tensor) -> tf.Tensor:
    """Return an eager tensor as one of the graph that is being traced, since gradients of tf.cond know no others."""
    graph = tf.compat.v1.get_default_graph()
    return graph.capture(handle) if isinstance(graph, tf.__internal__.FuncGraph) else handle


def _trained(call: _Call, trap: Any, value: tf.Tensor) -> list[tf.Tensor]:
    # Read before the gradient for the same reason; this is the rate that the gradient would read.
    call.hyper = [
        _hyper(entry.table, handle) for entry, handle in zip(call.entries, call.inputs["tables"], strict=True)
    ]

    @tf.custom_gradient
    def look_up_and_update(_: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        rows, places, firsts = _rows(call, training=True)

        def update(*gradients: tf.Tensor) -> tf.Tensor:
            sources = callers.sources_of_gradient()
            if sources is not None and not any(source is trap.handle for source in sources):
                return tf.zeros([])
            call.once()
            return _update(call, gradients, places, firsts)

        return rows, update

    return list(look_up_and_update(value))


def _update(call: _Call, gradients: Sequence[tf.Tensor], places: list[Any], firsts: list[Any]) -> tf.Tensor:
    """Run one step of each table, and return the gradient of the trap."""
    scale = call.state.scale_of_gradient()
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    if scale is not None:
        dense = [tf.math.divide_no_nan(gradient, scale) for gradient in dense]
    for position, entry in enumerate(call.entries):
        if entry.table.settings.optimizer.clips:
            dense[position] = clip(dense[position], firsts[position], entry.table.settings.optimizer)
    return ops().elastic_table_update(
        **call.inputs,
        places=places,
        firsts=firsts,
        gradients=dense,
        hyper=call.hyper,
    )


def _hyper(table: Table, handle: tf.Tensor) -> tf.Tensor:
    """Return what comes with the next update of a table, [1] float32: the learning rate."""
    rate = learning_rates.value_at(table.settings.optimizer.learning_rate, lambda: ops().elastic_table_step(handle))
    return tf.reshape(rate, [1])


def _not_trained(call: _Call, value: tf.Tensor) -> list[tf.Tensor]:
    """Look up without training; a gradient is an error, because it would silently learn nothing."""

    @tf.custom_gradient
    def look_up_only(_: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        def refuse(*_: tf.Tensor) -> tf.Tensor:
            raise ValueError(
                f"{call.owner}: a gradient of a lookup that was traced without a gradient tape, "
                "expected the argument training=True (or False, if rows shall not learn)"
            )

        return _rows(call, training=False)[0], refuse

    return list(look_up_only(value))
