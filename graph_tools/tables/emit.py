# SPDX-License-Identifier: Apache-2.0
"""Write a planned table into the graph: variables, a hash table if keys need one, and native ops for each lookup.

keys ─ (to int64) ─ row number ─ gather ─ (codes · scale + bias) ─ (select the default) ─ rows
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.graph import Graph, Output, attr_value
from graph_tools.live import LiveRows, RowSource, row_source
from graph_tools.live.rows import KeyKind
from graph_tools.model import HashTableContent, Model
from graph_tools.store.rows import is_quantized
from graph_tools.tables.plan import TablePlan
from graph_tools.tables.stored import INDEX, TABLE, describe_stored
from graph_tools.tables.streams import TableStreams


class Emitter:
    """Adds a table's variables once, and nodes for each of its lookups."""

    def __init__(self, model: Model, plan: TablePlan) -> None:
        import tensorflow as tf

        self.tf = tf
        self.model, self.graph, self.plan = model, model.graph, plan
        streams = TableStreams(plan)
        self.absent_row, self.zero_row = streams.absent_row, streams.zero_row
        self.has_zero_row = streams.has_zero_row
        source = self._row_source(streams)
        self.variables = {part: self._variable(part, tensor, source) for part, tensor in streams.tensors().items()}
        self.index = self.table = None
        if plan.layout.name == "remap":
            self.index = self._variable("index", streams.index())
        elif plan.layout.name == "hashed":
            self.value_type = tf.int32 if plan.layout.share == "equal" else tf.int64
            key_type = tf.string if plan.source.string_keys else tf.int64
            name = self.graph.fresh_name(f"{plan.name}/table")
            attrs = {
                "container": "", "shared_name": name, "use_node_name_sharing": False,
                "key_dtype": key_type, "value_dtype": self.value_type,
            }  # fmt: skip
            self.table = self.graph.add("HashTableV2", name=name, attrs=attrs).output()
            model.hash_tables[self.table.node] = HashTableContent(streams.keys(), streams.values())
        names = {part: handle.node for part, handle in self.variables.items()}
        names |= {
            part: output.node for part, output in ((INDEX, self.index), (TABLE, self.table)) if output is not None
        }
        model.stored_tables.append(describe_stored(plan, streams, names))

    def _row_source(self, streams: TableStreams) -> RowSource | None:
        """Return where the rows come from, if the model follows them."""
        if self.model.live is None:
            return None
        if self.plan.source.plain:
            return row_source(self.model.variables[self.plan.name])
        kind: KeyKind = "string" if self.plan.source.string_keys else "int64"
        rows = self.model.sparse_tables[self.plan.name].absent.rows
        used = self.plan.policy is not None and self.plan.policy.absent.rows is rows
        first = streams.absent_row if used and rows is not None else -1
        return RowSource(self.plan.source.name, kind, first_default=first, defaults=0 if rows is None else len(rows))

    def _variable(self, part: str, tensor: Any, source: RowSource | None = None) -> Output:
        name = self.graph.fresh_name(f"{self.plan.name}/{part}")
        attrs = {
            "container": "", "shared_name": name, "debug_name": name,
            "dtype": self.tf.as_dtype(tensor.dtype), "shape": tensor.shape,
        }  # fmt: skip
        handle = self.graph.add("VarHandleOp", name=name, attrs=attrs).output()
        self.model.variables[handle.node] = tensor if source is None else LiveRows(tensor, source)
        return handle

    def lookup(self, scope: str, keys: Output, key_type: Any, dtype: Any, default: Output | None = None) -> Output:
        """Add the nodes of one lookup.

        Parameters
        ----------
        scope : str
            Prefix of the names of the nodes.
        keys : Output [...]
            Keys; for a plain variable, row numbers.
        key_type, dtype : TensorFlow dtype
            Dtypes of the keys and of the returned rows.
        default : Output [dim] or [..., dim], optional
            Value of absent keys, instead of the table's own.

        Returns
        -------
        Output [..., dim]
        """
        ops = _Scope(self.graph, scope)
        if self.plan.source.plain:
            numbers, key_type = self._plain_numbers(ops, keys, key_type)
            missing = None
        else:
            numbers, missing = self._row_numbers(ops, self._int64(ops, keys, key_type), default is not None)
            key_type = self.tf.int64
        rows = self._read(ops, numbers, key_type, dtype)
        if default is None:
            return rows
        assert missing is not None
        column = ops.add("ExpandDims", missing, ops.const(-1), T=self.tf.bool, Tdim=self.tf.int32)
        return ops.add("SelectV2", column, default, rows, T=dtype)

    def segment_rows(self, scope: str, ids: Output, id_type: Any, dtype: Any) -> tuple[Output, Output, Any]:
        """Add the inputs that an op on segments needs for row numbers of a plain variable.

        Parameters
        ----------
        scope : str
            Prefix of the names of the nodes.
        ids : Output [n] int32 or int64
        id_type, dtype : TensorFlow dtype
            Dtypes of `ids` and of the returned rows.

        Returns
        -------
        data : Output [rows, dim]
            The stored rows themselves if they have the requested dtype; else a row for each of `ids`.
        numbers : Output [n]
            Row of `data` for each of `ids`.
        number_type : TensorFlow dtype
        """
        tf, ops = self.tf, _Scope(self.graph, scope)
        rows = self.variables.get("rows")
        if rows is not None and tf.as_dtype(self.model.variables[rows.node].dtype) == dtype:
            numbers, number_type = self._plain_numbers(ops, ids, id_type)
            return ops.add("ReadVariableOp", rows, dtype=dtype), numbers, number_type
        data = self.lookup(scope, ids, id_type, dtype)
        zero, one = (ops.const(np.array(value, id_type.as_numpy_dtype)) for value in (0, 1))
        count = ops.add("Size", ids, T=id_type, out_type=id_type)
        return data, ops.add("Range", zero, count, one, Tidx=id_type), id_type

    def _plain_numbers(self, ops: _Scope, ids: Output, id_type: Any) -> tuple[Output, Any]:
        """Return the numbers of the stored rows for row numbers of a plain variable, and their dtype."""
        tf = self.tf
        if id_type not in (tf.int32, tf.int64):
            ids, id_type = self._int64(ops, ids, id_type), tf.int64
        if self.index is None:
            return ids, id_type
        return self._gather(ops, self.index, tf.int32, ids, id_type), tf.int32

    def _int64(self, ops: _Scope, keys: Output, key_type: Any) -> Output:
        if key_type == self.tf.uint64:
            return ops.add("Bitcast", keys, T=key_type, type=self.tf.int64)
        if key_type in (self.tf.int64, self.tf.string):
            return keys
        return ops.add("Cast", keys, SrcT=key_type, DstT=self.tf.int64)

    def _row_numbers(self, ops: _Scope, keys: Output, wants_missing: bool) -> tuple[Output, Output | None]:
        """Return row numbers int64 of keys int64 or string and, if requested, which keys are absent."""
        tf, layout, modulo = self.tf, self.plan.layout.name, self.plan.counts.absent > 1
        if layout == "none":
            return self._look_up_nothing(ops, keys)
        if layout == "hashed":
            return self._look_up_hashed(ops, keys, wants_missing)
        shifted = keys
        if self.plan.low:
            shifted = ops.add("Sub", keys, ops.const(np.int64(self.plan.low)), T=tf.int64)
        # As unsigned numbers, keys below the smallest are larger than the largest.
        unsigned = ops.add("Bitcast", shifted, T=tf.int64, type=tf.uint64)
        inside = ops.add("Less", unsigned, ops.const(np.uint64(self.plan.counts.span)), T=tf.uint64)
        if layout == "direct":
            numbers = ops.add("SelectV2", inside, shifted, self._absent_numbers(ops, keys), T=tf.int64)
            return numbers, ops.add("LogicalNot", inside) if wants_missing else None
        assert self.index is not None
        place = ops.add("SelectV2", inside, shifted, ops.const(np.int64(self.plan.counts.span)), T=tf.int64)
        found = self._gather(ops, self.index, tf.int32, place, tf.int64)
        numbers = ops.add("Cast", found, SrcT=tf.int32, DstT=tf.int64)
        if not (modulo or self.plan.needs_missing):
            return numbers, None
        missing = ops.add("Less", numbers, ops.const(np.int64(0)), T=tf.int64)
        return ops.add("SelectV2", missing, self._absent_numbers(ops, keys), numbers, T=tf.int64), missing

    def _look_up_hashed(self, ops: _Scope, keys: Output, wants_missing: bool) -> tuple[Output, Output | None]:
        tf = self.tf
        key_type = tf.string if self.plan.source.string_keys else tf.int64
        zeros_last = self.plan.layout.share == "zero" and self.has_zero_row
        needs = zeros_last or wants_missing or self.plan.counts.absent > 1
        absent = np.array(-1 if needs else self.absent_row, self.value_type.as_numpy_dtype)
        assert self.table is not None
        found = ops.add("LookupTableFindV2", self.table, keys, ops.const(absent), Tin=key_type, Tout=self.value_type)
        if self.value_type != tf.int64:
            found = ops.add("Cast", found, SrcT=self.value_type, DstT=tf.int64)
        if not needs:
            return found, None
        missing = ops.add("Less", found, ops.const(np.int64(0)), T=tf.int64)
        if zeros_last:
            found = ops.add("Minimum", found, ops.const(np.int64(self.zero_row)), T=tf.int64)
        return ops.add("SelectV2", missing, self._absent_numbers(ops, keys), found, T=tf.int64), missing

    def _look_up_nothing(self, ops: _Scope, keys: Output) -> tuple[Output, Output]:
        """Return row numbers for a table without keys, for which every key is absent."""
        tf = self.tf
        key_type = tf.string if self.plan.source.string_keys else tf.int64
        shape = ops.add("Shape", keys, T=key_type, out_type=tf.int32)
        missing = ops.add("Fill", shape, ops.const(np.array(True)), T=tf.bool, index_type=tf.int32)
        zeros = ops.add("Fill", shape, ops.const(np.int64(0)), T=tf.int64, index_type=tf.int32)
        return (self._absent_numbers(ops, keys) if self.plan.counts.absent > 1 else zeros), missing

    def _absent_numbers(self, ops: _Scope, keys: Output) -> Output:
        """Return the row numbers of absent keys: one, or one for each remainder."""
        first = ops.const(np.int64(self.absent_row))
        if self.plan.counts.absent == 1:
            return first
        divisor = ops.const(np.int64(self.plan.counts.absent))
        remainder = ops.add("FloorMod", keys, divisor, T=self.tf.int64)
        return ops.add("AddV2", remainder, first, T=self.tf.int64) if self.absent_row else remainder

    def _gather(self, ops: _Scope, handle: Output, dtype: Any, numbers: Output, number_type: Any) -> Output:
        return ops.add("ResourceGather", handle, numbers, dtype=dtype, Tindices=number_type, batch_dims=0)

    def _read(self, ops: _Scope, numbers: Output, number_type: Any, dtype: Any) -> Output:
        """Return the rows [..., dim] of row numbers [...], in the dtype that the lookup returns."""
        tf = self.tf
        if not is_quantized(self.plan.row_type):
            stored = tf.as_dtype(self.model.variables[self.variables["rows"].node].dtype)
            rows = self._gather(ops, self.variables["rows"], stored, numbers, number_type)
            return rows if stored == dtype else ops.add("Cast", rows, SrcT=stored, DstT=dtype)
        codes = self._gather(ops, self.variables["codes"], tf.uint8, numbers, number_type)
        pair = self._gather(ops, self.variables["scale_bias"], tf.float16, numbers, number_type)
        pair = ops.add("Cast", pair, SrcT=tf.float16, DstT=tf.float32)
        scale = ops.add("Split", ops.const(-1), pair, num_split=2, T=tf.float32)
        if self.plan.row_type == "int4":
            codes = self._unpack_codes(ops, codes, numbers, number_type)
        wide = ops.add("Cast", codes, SrcT=tf.uint8, DstT=tf.float32)
        scaled = ops.add("Mul", wide, scale, T=tf.float32)
        rows = ops.add("AddV2", scaled, Output(scale.node, 1), T=tf.float32)
        return rows if dtype == tf.float32 else ops.add("Cast", rows, SrcT=tf.float32, DstT=dtype)

    def _unpack_codes(self, ops: _Scope, codes: Output, numbers: Output, number_type: Any) -> Output:
        """Return codes [..., dim] uint8 of packed codes [..., ceil(dim / 2)]."""
        tf, dim = self.tf, self.plan.source.dim
        low = ops.add("BitwiseAnd", codes, ops.const(np.uint8(15)), T=tf.uint8)
        high = ops.add("RightShift", codes, ops.const(np.uint8(4)), T=tf.uint8)
        both = ops.add("Pack", low, high, N=2, T=tf.uint8, axis=-1)
        shape = ops.add("Shape", numbers, T=number_type, out_type=tf.int32)
        width = ops.const(np.array([dim + dim % 2], np.int32))
        whole = ops.add("ConcatV2", shape, width, ops.const(0), N=2, T=tf.int32, Tidx=tf.int32)
        flat = ops.add("Reshape", both, whole, T=tf.uint8, Tshape=tf.int32)
        if dim % 2 == 0:
            return flat
        begin, end, step = (ops.const(np.array(bounds, np.int32)) for bounds in ([0, 0], [0, dim], [1, 1]))
        attrs = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 1, "new_axis_mask": 0, "shrink_axis_mask": 0}
        return ops.add("StridedSlice", flat, begin, end, step, T=tf.uint8, Index=tf.int32, **attrs)


class _Scope:
    """Adds nodes whose names have a common prefix."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def add(self, op: str, *inputs: Output, **attrs: Any) -> Output:
        return self.graph.add(op, inputs, name=f"{self.name}/{op}", attrs=attrs).output()

    def const(self, value: Any) -> Output:
        return self.graph.add_const(
            np.asarray(value, np.int32 if isinstance(value, int) else None), f"{self.name}/Const"
        )


def replace_output(model: Model, name: str, new: Output, dtype: Any, why: str) -> None:
    """Make the users of a node use another output.

    If clients fetch the node or other nodes wait for it, it stays as an Identity of the new output.
    """
    graph = model.graph
    node = graph[name]
    awaited = any(name in user.controls for user in graph.users(name))
    if name in model.outputs() or awaited or node.controls:
        graph.set_inputs(node, [new])
        node.op, node.attrs = "Identity", {"T": attr_value(dtype)}
        return
    graph.replace(node.output(), new)
    graph.remove(name, why)
