# SPDX-License-Identifier: Apache-2.0
"""Write a model as a SavedModel that stock TensorFlow loads: a flat graph, a checkpoint, assets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graph_tools.bundle import BundleWriter
from graph_tools.errors import ConversionError
from graph_tools.graph import Graph, Node, Output, is_native, op_def
from graph_tools.graph.op_library import is_ours
from graph_tools.model import HashTableContent, Model
from graph_tools.readers.saved_tables import TableOutput, add_initializers
from graph_tools.rewriting.live_ops import INITIALIZER as LIVE_INITIALIZER
from graph_tools.rewriting.live_ops import origin_of
from graph_tools.store.table_file import TableFile
from graph_tools.tensors import TensorSource

Progress = Callable[[str, int], None]
"""Called with a tensor's name and the number of its bytes written since the last call."""


def write_saved_model(
    model: Model,
    path: Path,
    progress: Progress | None = None,
    digest: bool = False,
    tables: TableOutput | None = None,
) -> dict[Path, str]:
    """Write a model into a new folder, and return the SHA-256 of its large files if `digest` is set.

    Every variable and hash table of the graph is written under the name of its handle. Embedding tables are written as
    `tables` says; None means into files that only this artifact uses. The graph is copied before the nodes for
    restoring are added, so `model` does not change.

    Raises
    ------
    ConversionError
        A variable has no value, or the disk is full.
    """
    path.mkdir(parents=True)
    (path / "variables").mkdir()
    tensors = saved_tensors(model)
    with BundleWriter(path / "variables" / "variables", digest=digest) as bundle:
        for name, tensor in sorted(tensors.items()):
            bundle.add(name, tensor if progress is None else _Watched(name, tensor, progress))
        bundle.finish()
    _write_assets(model, path)
    tables = tables or TableOutput()
    tables.write(model, path / "assets", progress)
    write_graph(model, path, tables.files)
    if model.extra is not None:
        _copy_extra(model.extra, path / "assets.extra")
    return bundle.digests | {file.path: file.sha256 for file in tables.files.values()}


def write_graph(model: Model, path: Path, tables: dict[str, TableFile]) -> None:
    """Write the graph and signatures into a folder that may contain the rest already; `tables` are in its assets."""
    (path / "saved_model.pb").write_bytes(saved_model_message(model, tables).SerializeToString(deterministic=True))


def _copy_extra(source: Path, target: Path) -> None:
    """Copy the export's other files; folders become writable, so that the artifact can be removed later."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(folder.stat().st_mode | 0o700)


def saved_tensors(model: Model) -> dict[str, TensorSource]:
    """Return the tensors of the checkpoint, by name."""
    tensors: dict[str, TensorSource] = {}
    for node in restored_handles(model):
        if node.name not in model.variables:
            raise ConversionError(f"variable '{node.name}': no value in the checkpoint, expected one to restore")
        tensors[node.name] = model.variables[node.name]
    for name, content in model.hash_tables.items():
        if name in model.graph:
            tensors[f"{name}/keys"] = content.keys
            if content.values is not None:
                tensors[f"{name}/values"] = content.values
    return tensors


def restored_handles(model: Model) -> list[Node]:
    """Return the variables that are restored: all but those that an initializer sets."""
    graph = model.graph
    assigned = {
        graph[name].inputs[0].node for name in graph.ancestors(model.init) if graph[name].op == "AssignVariableOp"
    }
    return [node for node in graph.of("VarHandleOp") if node.name in model.variables or node.name not in assigned]


class _Watched:
    """A tensor that reports how much of it was read."""

    def __init__(self, name: str, tensor: TensorSource, progress: Progress) -> None:
        self.name, self.tensor, self.progress = name, tensor, progress
        self.dtype, self.shape = tensor.dtype, tensor.shape

    def chunks(self, rows: int) -> Any:
        for chunk in self.tensor.chunks(rows):
            yield chunk
            self.progress(self.name, chunk.nbytes)

    def read(self) -> Any:
        return self.tensor.read()


def _write_assets(model: Model, path: Path) -> None:
    files = asset_files(model)
    if files:
        (path / "assets").mkdir()
    for file in set(files.values()):
        shutil.copyfile(file, path / "assets" / file.name)


def asset_files(model: Model) -> dict[str, Path]:
    """Return the assets whose node is still in the graph; two files with the same name are refused."""
    files = {name: file for name, file in model.assets.items() if name in model.graph}
    names: dict[str, Path] = {}
    for file in files.values():
        if names.setdefault(file.name, file) != file:
            raise ConversionError(f"assets '{names[file.name]}' and '{file}': the same name, expected different names")
    return files


def saved_model_message(model: Model, tables: dict[str, TableFile]) -> Any:
    """Build the SavedModel message, with a restore op, an initializer and the signatures.

    Parameters
    ----------
    model : Model
    tables : dict of str to TableFile
        The files of its embedding tables, by node.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta_graph = saved_model.meta_graphs.add()
    meta_graph.meta_info_def.tags.extend(model.tags)
    meta_graph.meta_info_def.tensorflow_version = tf.__version__
    graph = Graph.from_graph_def(model.graph.to_graph_def())
    graph.op_defs = model.graph.op_defs
    restore = _Restore(graph, model)
    meta_graph.saver_def.filename_tensor_name = str(restore.filename)
    meta_graph.saver_def.save_tensor_name = str(restore.filename)
    meta_graph.saver_def.restore_op_name = restore.op
    meta_graph.saver_def.version = 2
    for handle in restore.variables:
        _add_variable(meta_graph, graph, handle, restore)
    initializers = [*model.init, *_fill_tables(model, graph, meta_graph, tables)]
    if initializers:
        init = graph.add("NoOp", name="init_all_tables", controls=initializers).name
        meta_graph.collection_def["saved_model_main_op"].node_list.value.append(init)
    for name, file in asset_files(model).items():
        asset = meta_graph.asset_file_def.add(filename=file.name)
        asset.tensor_info.name = f"{name}:0"
    for name, signature in model.signatures.items():
        written = meta_graph.signature_def[name]
        written.method_name = signature.method_name
        for endpoints, target in ((signature.inputs, written.inputs), (signature.outputs, written.outputs)):
            for key, endpoint in endpoints.items():
                info = target[key]
                info.name = str(endpoint.tensor)
                info.dtype = endpoint.dtype.as_datatype_enum
                info.tensor_shape.CopyFrom(tf.TensorShape(endpoint.shape).as_proto())
        for key, value in signature.defaults.items():
            written.defaults[key].CopyFrom(value)
    meta_graph.meta_info_def.stripped_op_list.op.extend(_library_ops(graph))
    meta_graph.graph_def.CopyFrom(graph.to_graph_def())
    return saved_model


def _fill_tables(model: Model, graph: Graph, meta_graph: Any, tables: dict[str, TableFile]) -> list[str]:
    """Add the nodes that fill tables, which run before a live model is initialized, and return their names."""
    live = graph.of(LIVE_INITIALIZER)
    origins = {name: origin_of(model, name) for name in tables if live}
    sources = {name: origin.source.name for name, origin in origins.items() if origin is not None}
    added = add_initializers(graph, meta_graph, tables, sources)
    for node in live:
        graph.set_inputs(node, node.inputs, added)
    return added


def _library_ops(graph: Graph) -> list[Any]:
    """Return the definitions of ops that stock TensorFlow lacks, so that the model can be read without libraries."""
    named = {node.op for node in graph}
    ops = sorted(op for op in named if is_ours(op) or not is_native(op))
    return [definition for definition in (op_def(op, graph.op_defs) for op in ops) if definition is not None]


class _Restore:
    """Adds the nodes that restore a checkpoint."""

    def __init__(self, graph: Graph, model: Model) -> None:
        import numpy as np

        self.graph = graph
        self.filename = graph.add_const("model", "save/Const")
        self.variables: dict[str, tuple[Output, str]] = {}
        ops = []
        for handle in restored_handles(model):
            value = self._read(handle.name, handle.attrs["dtype"])
            assign = graph.add(
                "AssignVariableOp",
                [handle.output(), value],
                name=f"save/Assign/{handle.name}",
                attrs={"dtype": handle.attrs["dtype"]},
            )
            self.variables[handle.name] = (value, assign.name)
            ops.append(assign.name)
        for name, content in model.hash_tables.items():
            if name in graph:
                ops.append(self._fill(name, content, np))
        self.op = graph.add("NoOp", name="save/restore_all", controls=ops).name

    def _read(self, tensor: str, dtype: Any) -> Output:
        """Read one tensor with its own op; one op for all would load all tensors before the first is assigned."""
        import numpy as np
        import tensorflow as tf

        kind = tf.as_dtype(dtype.type)
        names = self.graph.add_const(np.array([tensor.encode()], object), f"save/name/{tensor}")
        slices = self.graph.add_const(np.array([b""], object), f"save/slice/{tensor}")
        inputs = [self.filename, names, slices]
        return self.graph.add("RestoreV2", inputs, name=f"save/Restore/{tensor}", attrs={"dtypes": [kind]}).output()

    def _fill(self, name: str, content: HashTableContent, np: Any) -> str:
        handle = self.graph[name]
        keys = self._read(f"{name}/keys", handle.attrs["key_dtype"])
        if content.values is not None:
            values = self._read(f"{name}/values", handle.attrs["value_dtype"])
        else:
            dtype = handle.attrs["value_dtype"]
            bounds = [
                self.graph.add_const(np.array(bound, np.int64), "save/bound") for bound in (0, len_of(content), 1)
            ]
            values = self.graph.add("Range", bounds, name=f"save/Range/{name}", attrs={"Tidx": dtype}).output()
        attrs = {"Tin": handle.attrs["key_dtype"], "Tout": handle.attrs["value_dtype"]}
        if content.mutable:
            op = "LookupTableImportV2"
        else:
            op, attrs = "InitializeTableV2", {"Tkey": attrs["Tin"], "Tval": attrs["Tout"]}
        return self.graph.add(op, [handle.output(), keys, values], name=f"save/Fill/{name}", attrs=attrs).name


def len_of(content: HashTableContent) -> int:
    """Return the number of keys of a hash table."""
    return int(content.keys.shape[0])


def _add_variable(meta_graph: Any, graph: Graph, handle: str, restore: _Restore) -> None:
    """Describe a variable in the form that TF 1's loaders in Python expect."""
    from tensorflow.core.framework import variable_pb2

    value, assign = restore.variables[handle]
    reads = [user for user in graph.users(handle) if user.op == "ReadVariableOp"]
    snapshot = (
        reads[0]
        if reads
        else graph.add(
            "ReadVariableOp",
            [graph[handle].output()],
            name=f"save/Read/{handle}",
            attrs={"dtype": graph[handle].attrs["dtype"]},
        )
    )
    described = variable_pb2.VariableDef(
        variable_name=f"{handle}:0",
        initial_value_name=str(value),
        initializer_name=assign,
        snapshot_name=str(snapshot.output()),
        is_resource=True,
        trainable=False,
    )
    meta_graph.collection_def["variables"].bytes_list.value.append(described.SerializeToString())
