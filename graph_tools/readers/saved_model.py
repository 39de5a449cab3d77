# SPDX-License-Identifier: Apache-2.0
"""Read a SavedModel of TF 1 or TF 2 from only its protocol buffers and checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graph_tools.bundle import BundleReader
from graph_tools.errors import UnreadableError, UsageError
from graph_tools.graph import Graph, Output, inline_calls
from graph_tools.graph.op_library import load_for
from graph_tools.model import Endpoint, HashTableContent, Model, Signature
from graph_tools.readers.restore import initial_copies, restored_tables, restored_variables
from graph_tools.readers.saved_tables import take_tables
from graph_tools.readers.slices import sliced

INIT_SIGNATURE = "__saved_model_init_op"
TRAIN_SIGNATURE = "__saved_model_train_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")


def is_saved_model(path: Path) -> bool:
    """Return whether a folder contains a SavedModel."""
    return (path / "saved_model.pb").is_file() or (path / "saved_model.pbtxt").is_file()


def read_saved_model(
    path: Path, *, tags: tuple[str, ...] = (), checkpoint: Path | None = None, signatures: tuple[str, ...] = ()
) -> Model:
    """Read a SavedModel into one flat graph with its calls inlined.

    Parameters
    ----------
    path : Path
        Folder with `saved_model.pb` or `saved_model.pbtxt`.
    tags : tuple of str
        Tags of the MetaGraph; if empty: the one tagged `serve`, or the only one.
    checkpoint : Path, optional
        Prefix of a checkpoint with the weights, instead of `variables/variables`.
    signatures : tuple of str
        Signatures to keep; all of them if empty.

    Raises
    ------
    UnreadableError, UsageError
    """
    meta_graph = choose_meta_graph(read_proto(path), tags, path)
    graph = Graph.from_graph_def(meta_graph.graph_def, str(path))
    graph.op_defs = {op.name: op for op in meta_graph.meta_info_def.stripped_op_list.op}
    load_for(graph)
    kept = read_signatures(meta_graph, graph, signatures, path)
    named = {output.tensor.node for signature in kept.values() for output in signature.outputs.values()}
    named.add(Output.parse(meta_graph.saver_def.restore_op_name).node)
    inline_calls(graph, frozenset(named))
    prefix = checkpoint or path / "variables" / "variables"
    model = Model(
        path=path,
        kind="SavedModel (TF 2)" if meta_graph.HasField("object_graph_def") else "SavedModel (TF 1)",
        graph=graph,
        signatures=kept,
        assets=read_assets(meta_graph, path),
        init=[name for name in init_ops(meta_graph) if name in graph],
        checkpoint=BundleReader(prefix) if checkpoint or has_variables(meta_graph, path) else None,
        tags=tuple(meta_graph.meta_info_def.tags),
        extra=path / "assets.extra" if (path / "assets.extra").is_dir() else None,
        removed_signatures=dict.fromkeys(
            sorted(set(meta_graph.signature_def) - {INIT_SIGNATURE, TRAIN_SIGNATURE, *kept}),
            "not among the signatures to keep",
        ),
    )
    read_assets_directly(model)
    take_tables(model)
    restore_op = meta_graph.saver_def.restore_op_name
    if model.checkpoint is not None and restore_op:
        attach_checkpoint(model, restore_op)
    return model


def read_proto(path: Path) -> Any:
    """Parse the SavedModel message of a folder."""
    from google.protobuf import message, text_format
    from tensorflow.core.protobuf import saved_model_pb2

    found = saved_model_pb2.SavedModel()
    binary, text = path / "saved_model.pb", path / "saved_model.pbtxt"
    try:
        if binary.is_file():
            found.ParseFromString(binary.read_bytes())
        elif text.is_file():
            text_format.Parse(text.read_text(encoding="utf-8"), found)
        else:
            raise UnreadableError(f"{path}: no saved_model.pb, expected the folder of a SavedModel")
    except (message.DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise UnreadableError(
            f"{binary if binary.is_file() else text}: {error}, expected a SavedModel message"
        ) from error
    if not found.meta_graphs:
        raise UnreadableError(f"{path}: no MetaGraph, expected at least one")
    return found


def choose_meta_graph(saved_model: Any, tags: tuple[str, ...], path: Path) -> Any:
    """Return the MetaGraph with these tags, else the one for serving, else the only one."""
    graphs = list(saved_model.meta_graphs)
    wanted = set(tags or ("serve",))
    exact = [graph for graph in graphs if set(graph.meta_info_def.tags) == wanted]
    if exact:
        return exact[0]
    if not tags and len(graphs) == 1:
        return graphs[0]
    found = "; ".join(",".join(graph.meta_info_def.tags) or "(none)" for graph in graphs)
    raise UsageError(f"{path}: MetaGraphs tagged {found}, expected one tagged {','.join(sorted(wanted))}")


def read_signatures(meta_graph: Any, graph: Graph, wanted: tuple[str, ...], path: Path) -> dict[str, Signature]:
    """Read the signatures that clients can use, without those for initialization and training."""
    import tensorflow as tf

    def endpoint(info: Any, key: str, place: str) -> Endpoint:
        if not info.name:
            raise UnreadableError(f"{place}: '{key}' is a sparse or composite tensor, expected a dense one")
        tensor = Output.parse(info.name)
        if tensor.node not in graph:
            raise UnreadableError(f"{place}: '{key}' is the tensor '{info.name}', expected one of the graph")
        shape = info.tensor_shape
        sizes = None if shape.unknown_rank else tuple(None if d.size < 0 else int(d.size) for d in shape.dim)
        return Endpoint(tensor, tf.as_dtype(info.dtype), sizes)

    found: dict[str, Signature] = {}
    for name, signature in meta_graph.signature_def.items():
        if name in (INIT_SIGNATURE, TRAIN_SIGNATURE) or (wanted and name not in wanted):
            continue
        place = f"{path}: signature '{name}'"
        found[name] = Signature(
            {key: endpoint(info, key, place) for key, info in sorted(signature.inputs.items())},
            {key: endpoint(info, key, place) for key, info in sorted(signature.outputs.items())},
            signature.method_name,
            read_defaults(signature, place),
        )
    missing = [name for name in wanted if name not in found]
    if missing or not found:
        have = ", ".join(sorted(set(meta_graph.signature_def) - {INIT_SIGNATURE, TRAIN_SIGNATURE})) or "none"
        if missing:
            raise UsageError(f"{path}: no signature '{missing[0]}', expected one of: {have}")
        raise UsageError(f"{path}: no signature, expected at least one")
    return found


def read_defaults(signature: Any, place: str) -> dict[str, Any]:
    """Read the values of inputs that a request may omit; values for unknown inputs are ignored, as servers do."""
    import numpy as np
    import tensorflow as tf

    found = {}
    for key, value in sorted(signature.defaults.items()):
        if key not in signature.inputs:
            continue
        info = signature.inputs[key]
        try:
            array = np.asarray(tf.make_ndarray(value))
        except (TypeError, ValueError) as error:
            raise UnreadableError(f"{place}: default of input '{key}': {error}, expected a tensor") from error
        if value.dtype != info.dtype or not tf.TensorShape(info.tensor_shape).is_compatible_with(array.shape):
            have, want = tf.as_dtype(value.dtype).name, tf.as_dtype(info.dtype).name
            raise UnreadableError(
                f"{place}: default of input '{key}': {have} {list(array.shape)}, expected {want} "
                f"{tf.TensorShape(info.tensor_shape)}"
            )
        found[key] = value
    return found


def init_ops(meta_graph: Any) -> list[str]:
    """Return the names of the nodes that a loader runs after the restore."""
    if INIT_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[INIT_SIGNATURE].outputs
        return [Output.parse(info.name).node for info in outputs.values()]
    for collection in _INIT_COLLECTIONS:
        names = meta_graph.collection_def[collection].node_list.value if collection in meta_graph.collection_def else ()
        if names:
            return [Output.parse(name).node for name in names]
    return []


def read_assets(meta_graph: Any, path: Path) -> dict[str, Path]:
    """Return the files that initialize tables, by the node that contains the file's name."""
    from tensorflow.core.protobuf import meta_graph_pb2

    files = list(meta_graph.asset_file_def)
    if not files and "saved_model_assets" in meta_graph.collection_def:
        for packed in meta_graph.collection_def["saved_model_assets"].any_list.value:
            file_def = meta_graph_pb2.AssetFileDef()
            packed.Unpack(file_def)
            files.append(file_def)
    assets = {}
    for file_def in files:
        file = path / "assets" / file_def.filename
        if file == path / "assets":
            # Monolith names the folder itself ("./") in order to build file names; there is nothing to copy.
            continue
        if not file.is_file():
            raise UnreadableError(f"{file}: does not exist, expected the asset that the SavedModel names")
        assets[Output.parse(file_def.tensor_info.name).node] = file
    return assets


def read_assets_directly(model: Model) -> None:
    """Make initializers read an asset's name from its own node; TF 2 passes it through a variable set at load."""
    graph = model.graph
    for asset in model.assets:
        for assign, index in graph.uses(Output(asset)):
            if assign.op == "AssignVariableOp" and index == 1:
                for read in graph.users(assign.inputs[0].node):
                    if read.op == "ReadVariableOp":
                        graph.replace(read.output(), Output(asset))


def has_variables(meta_graph: Any, path: Path) -> bool:
    """Return whether there is a checkpoint; if the graph needs one that does not exist, raise `UnreadableError`."""
    if (path / "variables" / "variables.index").is_file():
        return True
    ops = {"VarHandleOp", "VariableV2", "Variable"}
    if meta_graph.saver_def.restore_op_name and any(node.op in ops for node in meta_graph.graph_def.node):
        raise UnreadableError(
            f"{path / 'variables' / 'variables.index'}: does not exist, expected the model's checkpoint"
        )
    return False


def attach_checkpoint(model: Model, restore_op: str) -> None:
    """Record for each variable and native table the tensors of the checkpoint from which it is restored."""
    if restore_op not in model.graph:
        restore_op = Output.parse(restore_op).node
    if restore_op not in model.graph:
        raise UnreadableError(f"{model.path}: restore op '{restore_op}' is not in the graph, expected a node")
    for handle, name, part in restored_variables(model.graph, restore_op):
        if name in model.checkpoint:
            model.variables[handle] = sliced(model.checkpoint.tensor(name), part, name)
            model.tensor_names[handle] = (name,)
    for copy, original in initial_copies(model.graph):
        if copy in model.variables and original not in model.variables:
            model.variables[original] = model.variables[copy]
            model.tensor_names[original] = model.tensor_names[copy]
    for handle, keys, values in restored_tables(model.graph, restore_op):
        names = (keys,) if values is None else (keys, values)
        if all(name in model.checkpoint for name in names):
            filled = [model.checkpoint.tensor(name) for name in names]
            mutable = "Mutable" in model.graph[handle].op
            model.hash_tables[handle] = HashTableContent(filled[0], filled[1] if values else None, mutable)
            model.tensor_names[handle] = names
