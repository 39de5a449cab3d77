# SPDX-License-Identifier: Apache-2.0
"""Write a model as a SavedModel of TensorFlow's own ops."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from elastic_training.export.contents import find_contents, write_contents
from elastic_training.export.served_table import ServedTable, default_row
from elastic_training.layers.native import native_lookups
from elastic_training.layers.parts_of_model import objects_of
from elastic_training.table import Table

_INPUT = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

Function = Callable[[dict[str, tf.Tensor]], Any]


def export(
    model: Any,
    path: str | Path,
    *,
    inputs: Mapping[str, tf.TensorSpec] | None = None,
    function: Function | None = None,
) -> None:
    """Write a SavedModel that stock TensorFlow runs, and that graph-tools and serving-proxy take as it is.

    Rows and weights are those of the model, bit for bit; keys without a row read the default row of their table. The
    export begins a lineage, so that a `Publisher` can continue it.

    Parameters
    ----------
    model : keras.Model, tf_keras.Model or tf.Module
    path : path
        The folder; it must not exist.
    inputs : {name: TensorSpec}, optional
        The inputs that clients send; None: those of a Keras model. They must be dense.
    function : callable, optional
        Returns the outputs, a tensor or {name: tensor}, of the inputs {name: tensor}; None: `model(inputs)`. Functions
        that it calls must not be traced yet if they look up rows.

    Raises
    ------
    FileExistsError
        `path` exists.
    ValueError
        The model has no tables, an input is not dense, or lookups were traced before.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path}: exists, expected a new folder")
    specs = _specs_of(model) if inputs is None else _named(inputs)
    served: dict[int, tuple[Table, ServedTable]] = {}

    def find(table: Table, keys: tf.Tensor) -> tf.Tensor:
        with tf.init_scope():
            if id(table) not in served:
                served[id(table)] = table, ServedTable(table)
        return served[id(table)][1].find(keys, default_row(table))

    @tf.function(input_signature=[specs], autograph=False)
    def serve(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with native_lookups(find):
            given = function(features) if function is not None else _call(model, features)
        return _outputs_of(model, given)

    concrete = serve.get_concrete_function()
    _check(concrete, served)
    module = tf.Module()
    module.variables_of_model = list(concrete.graph.variables)
    module.tables = [table for _, table in served.values()]
    module.resources = list(_resources_of(model))
    module.serve = serve
    places = {id(table): place for place, (table, _) in enumerate(served.values())}
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        tf.saved_model.save(module, str(part), signatures={"serving_default": concrete})
        write_contents(part, find_contents(part, model, module, places))
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _specs_of(model: Any) -> dict[str, tf.TensorSpec]:
    """Return the inputs of a Keras model by their names."""
    given = getattr(model, "inputs", None)
    if not given:
        raise ValueError(f"{type(model).__name__}: no inputs, expected the argument inputs={{name: tf.TensorSpec}}")
    return _named({tensor.name.split(":")[0]: _spec(tensor) for tensor in given})


def _spec(tensor: Any) -> Any:
    if (
        getattr(tensor, "sparse", False)
        or getattr(tensor, "ragged", False)
        or isinstance(getattr(tensor, "type_spec", None), (tf.RaggedTensorSpec, tf.SparseTensorSpec))
    ):
        raise ValueError(
            f"input {tensor.name!r}: ragged or sparse, expected dense; give inputs=, and a function= that makes it so"
        )
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _named(inputs: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
    for name, spec in inputs.items():
        if not _INPUT.fullmatch(name):
            raise ValueError(f"input {name!r}: expected a name of letters, digits and _")
        if not isinstance(spec, tf.TensorSpec):
            raise ValueError(f"input {name!r}: {type(spec).__name__}, expected a tf.TensorSpec")
    return {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in inputs.items()}


def _call(model: Any, features: dict[str, tf.Tensor]) -> Any:
    """Call a model without training; a functional model of Keras gets its inputs in their own structure."""
    structure = getattr(model, "input", None) if getattr(model, "inputs", None) else None
    if structure is None:
        return model(features, training=False)
    given = tf.nest.map_structure(lambda tensor: features[tensor.name.split(":")[0]], structure)
    return model(given, training=False)


def _outputs_of(model: Any, given: Any) -> dict[str, tf.Tensor]:
    if isinstance(given, Mapping):
        return {str(name): tf.convert_to_tensor(value) for name, value in given.items()}
    values = list(given) if isinstance(given, (list, tuple)) else [given]
    names = getattr(model, "output_names", None) or []
    if len(names) != len(values):
        names = ["output"] if len(values) == 1 else [f"output_{i}" for i in range(len(values))]
    return dict(zip(names, values, strict=True))


def _check(concrete: Any, served: Mapping[int, Any]) -> None:
    definition = concrete.graph.as_graph_def()
    ops = {node.op for node in definition.node}
    ops |= {node.op for function in definition.library.function for node in function.node_def}
    traced = sorted(op for op in ops if op.startswith("ElasticTable"))
    if traced:
        raise ValueError(
            f"{traced[0]} in a function that was traced before, expected lookups that the export traces; call the "
            "function without its tf.function"
        )
    if not served:
        raise ValueError("no table is looked up, expected a model with layers of elastic_training")


def _resources_of(model: Any) -> Iterator[Any]:
    """Yield other resources that the graph may need, such as vocabularies of Keras layers."""
    for part in objects_of(model):
        for value in vars(part).values():
            if isinstance(value, tf.saved_model.experimental.TrackableResource):
                yield value
