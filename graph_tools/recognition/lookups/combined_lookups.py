# SPDX-License-Identifier: Apache-2.0
"""Recognize the lookups whose rows are combined: sums, means and weighted sums of the rows of several ids."""

from __future__ import annotations

from dataclasses import replace

from graph_tools.graph import Node, Output, constant, constant_list, dtype_of, is_constant, operand, skip, source
from graph_tools.plans.embedding_parts import COMBINERS
from graph_tools.recognition.lookups.entries import Entries
from graph_tools.recognition.lookups.lookup_analyses import LookupAnalyses, LookupFinder
from graph_tools.recognition.lookups.masks import as_numbers, factors
from graph_tools.recognition.lookups.numbers import Numbers
from graph_tools.recognition.lookups.pieces import KeySource, Part, Piece
from graph_tools.recognition.lookups.rows import Gathered
from graph_tools.recognition.lookups.safe_lookup import is_zeros
from graph_tools.recognition.lookups.tables import StoredRows
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused, value_of

_SEGMENTS = {"SparseSegmentMean": "mean", "SparseSegmentSum": "sum", "SparseSegmentSqrtN": "sqrtn"}
# At most this is added to a number of values to avoid a division by zero.
_TINY = 1e-6
SEGMENT_OPS = {*_SEGMENTS, *(f"{op}WithNumSegments" for op in _SEGMENTS)}


class CombinedFinder(LookupFinder):
    """Finds combined rows in a graph, which must not change meanwhile.

    Attributes
    ----------
    fills : dict of Output to str
        The SparseFillEmptyRows of combined lookups.
    """

    def __init__(self, analyses: LookupAnalyses) -> None:
        super().__init__(analyses)
        self.fills: dict[Output, str] = {}
        self._weighted: dict[Output, tuple[Output, Output]] = {}

    def combined(self, node: Node) -> Outcome[Piece]:
        """Return the rows that an op on segments adds up."""
        table = self.rows.table(node.inputs[0])
        if isinstance(table, Found):
            stored, numbers = table.value, node.inputs[1]
            if stored.row_type != "fp32":
                return Refused(f"rows of '{stored.values}' are {stored.row_type}, expected float32")
        else:
            gathered = self._gathered_once(node)
            if not isinstance(gathered, Found):
                return gathered or table
            stored, numbers = gathered.value.rows, gathered.value.numbers
        if node.controls:
            return Refused(f"'{node.name}' waits for other nodes, expected none")
        if len(stored.row_shape) != 1:
            return Refused(f"rows of '{stored.values}' have {len(stored.row_shape)} dimensions, expected 1")
        count = node.inputs[3] if node.op.endswith("WithNumSegments") else None
        combiner = _SEGMENTS[node.op.removesuffix("WithNumSegments")]
        assert combiner in COMBINERS
        found = self.entries.of(numbers, node.inputs[2], count, absent_as_zeros=combiner == "sum")
        return self._combined(node, found.value, stored, combiner) if isinstance(found, Found) else found

    def pooled(self, node: Node, piece: Piece) -> Outcome[Piece]:
        """Return the products or sums of rows that an op on segments adds up, which were computed for each id."""
        parts = piece.parts
        keys = [part.key for part in parts if part.key is not None and part.combiner is None]
        if len(keys) < len(parts) or len(piece.shape) != 1 or piece.initial is not None or node.controls:
            return NoMatch()
        keys += [key for part in parts for key, _ in part.factors]
        whole = all(part.width == piece.width for part in parts)
        if not whole or any(key.values != keys[0].values or key.may_be_none or key.layout != "dense" for key in keys):
            return NoMatch()
        ids = self._ids_in_order(node, keys[0].values)
        if ids is None:
            return Refused(f"'{node.name}' combines rows of '{node.inputs[0]}' in an order that is not known")
        count = node.inputs[3] if node.op.endswith("WithNumSegments") else None
        outcome = self.entries.of(ids, node.inputs[2], count, absent_as_zeros=False)
        if not isinstance(outcome, Found):
            return outcome
        found, dtype = outcome.value, dtype_of(self.graph, ids)
        base = found.numbers.key
        if found.fill is not None or found.numbers != Numbers(base):
            return Refused(f"ids '{ids}' are filled or looked up before their rows are")
        if base.steps and (dtype is None or dtype.name != "int64"):
            return Refused(f"ids '{ids}' are computed in 32 bits")

        def placed(key: KeySource) -> KeySource:
            return replace(base, steps=(*base.steps, *key.steps))

        combiner = _SEGMENTS[node.op.removesuffix("WithNumSegments")]
        made = tuple(
            replace(
                part,
                key=placed(key),
                combiner=combiner,
                factors=tuple((placed(other), table) for other, table in part.factors),
            )
            for part, key in zip(parts, keys, strict=False)
        )
        return Found(Piece(found.batch, piece.shape, made))

    def weighted(self, node: Node) -> Outcome[Piece]:
        """Return the sum of rows times weights that a SegmentSum computes."""
        product = source(self.graph, node.inputs[0], "Mul")
        if product is None or node.controls or product.controls:
            return NoMatch()
        for rows, column in (product.inputs, product.inputs[::-1]):
            gathered, weights = value_of(self.rows.of(skip(self.graph, rows))), self._weights_before_column(column)
            if gathered is not None and weights is not None and len(gathered.rows.row_shape) == 1:
                found = self.entries.of(gathered.numbers, node.inputs[1], None, weights)
                if not isinstance(found, Found):
                    return found
                self._weighted[node.output()] = (skip(self.graph, column), skip(self.graph, node.inputs[1]))
                return self._combined(node, found.value, gathered.rows, "sum")
        return NoMatch()

    def averaged(self, node: Node, total: Piece) -> Outcome[Piece]:
        """Return the mean of the values that are present: their sum, divided by their number."""
        part = total.parts[0]
        if (
            len(total.parts) > 1
            or part.combiner != "sum"
            or part.key is None
            or total.initial is not None
            or node.controls
        ):
            return NoMatch()
        counted = self.graph[skip(self.graph, node.inputs[1]).node]
        safe = node.op == "DivNoNan"
        if counted.op in {"AddV2", "Add", "Maximum"}:
            least = constant(self.graph, counted.inputs[1])
            if least is None or least.size != 1 or not 0 < least.item() <= (_TINY if counted.op != "Maximum" else 1):
                return NoMatch()
            safe, counted = True, self.graph[skip(self.graph, counted.inputs[0]).node]
        sizes = self.batches.of(node.inputs[1])
        mask = as_numbers(self.graph, counted.inputs[0]) if counted.op == "Sum" and safe else None
        if mask is None or sizes is None or len(sizes) != len(total.shape) + 1 or set(sizes[1:]) != {1}:
            return NoMatch()
        tests, plain = factors(self.graph, mask), replace(part.key, ignore=None, ignore_negative=False)
        found = value_of(self.masks.apply(tests, Numbers(plain))) if tests is not None else None
        values, given = self.batches.of(part.key.values), self.batches.of(mask)
        if found is None or found.key != part.key or values is None or given is None:
            return NoMatch()
        if self.batches.total(values) != self.batches.total(given) or not self._sums_rows(counted):
            return NoMatch()
        return Found(replace(total, parts=(replace(part, combiner="mean"),)))

    def normalized(self, node: Node, total: Piece) -> Outcome[Piece]:
        """Return a weighted sum divided by the sum of the weights, or by the root of the sum of their squares."""
        part, made = total.parts[0], self._weighted.get(skip(self.graph, node.inputs[0]))
        if made is None or part.combiner != "sum" or node.controls:
            return NoMatch()
        if node.op != "DivNoNan" and not part.positive_weights:
            return NoMatch()  # Weights whose sum is 0 give NaN.
        divisor, combiner = self.graph[skip(self.graph, node.inputs[1]).node], "mean"
        if divisor.op == "Sqrt":
            divisor, combiner = self.graph[skip(self.graph, divisor.inputs[0]).node], "sqrtn"
        column, segments = made
        if divisor.op != "SegmentSum" or skip(self.graph, divisor.inputs[1]) != segments:
            return NoMatch()
        added = skip(self.graph, divisor.inputs[0])
        if combiner == "sqrtn":
            square = self.graph[added.node]
            both = square.op == "Mul" and skip(self.graph, square.inputs[1]) == skip(self.graph, square.inputs[0])
            power = square.op == "Pow" and is_constant(self.graph, square.inputs[1], 2.0)
            if not (both or power or square.op == "Square"):
                return NoMatch()
            added = skip(self.graph, square.inputs[0])
        if added != column:
            return NoMatch()
        fill = self.fills.get(skip(self.graph, node.inputs[0]))
        if fill is not None:
            self.fills[node.output()] = fill
        return Found(replace(total, parts=(replace(part, combiner=combiner),)))

    def emptied(self, select: Node, combined: Piece) -> Outcome[Piece]:
        """Return a combined lookup whose filled rows a Select replaces by zeros."""
        fill = self.fills.get(skip(self.graph, select.inputs[2]))
        if fill is None or not is_zeros(self.graph, select.inputs[1]) or select.controls:
            return NoMatch()
        condition = self.graph[skip(self.graph, select.inputs[0]).node]
        empty = skip(self.graph, select.inputs[0])
        if condition.op in {"ExpandDims", "Reshape"}:
            empty = operand(self.graph, condition, 0)
        sizes = self.batches.of(select.inputs[0])
        column = sizes is not None and (len(sizes) == 1 or (len(sizes) == 2 and sizes[1] == 1))
        if empty != Output(fill, 2) or not column or (select.op == "SelectV2" and len(sizes or ()) != 2):
            return Refused(f"condition of '{select.name}' is not that of empty rows")
        return Found(replace(combined, parts=tuple(replace(part, empty=None) for part in combined.parts)))

    def _combined(self, node: Node, found: Entries, stored: StoredRows, combiner: str) -> Outcome[Piece]:
        outcome = self.tables.of(stored, found.numbers)
        if not isinstance(outcome, Found):
            return outcome
        table = outcome.value
        empty: int | str | None = None
        if found.fill is not None:
            self.fills[node.output()] = found.fill
            # If each row has a value, none is filled.
            if found.numbers.key.layout != "dense":
                empty = self._default_key(found.numbers, self.graph[found.fill])
                if empty is None:
                    return Refused(f"default id of '{found.fill}' is hashed or changed after it is filled in")
        part = Part(
            0,
            table.dim,
            key=found.numbers.key,
            table=table,
            combiner=combiner,
            weights=found.weights,
            positive_weights=found.positive,
            empty=empty,
        )
        return Found(Piece(found.batch, (table.dim,), (part,)))

    def _gathered_once(self, node: Node) -> Outcome[Gathered]:
        """Recognize rows that were gathered for each id, or once for each distinct id."""
        outcome = self.rows.of(skip(self.graph, node.inputs[0]))
        if not isinstance(outcome, Found):
            return outcome
        found = outcome.value
        ids = self._ids_in_order(node, found.numbers)
        if ids is None:
            return Refused(f"'{node.name}' combines rows of '{node.inputs[0]}' in an order that is not known")
        return Found(replace(found, numbers=ids))

    def _ids_in_order(self, node: Node, gathered: Output) -> Output | None:
        """Return the ids whose rows an op on segments adds up, given those for which rows were gathered."""
        numbers = skip(self.graph, node.inputs[1])
        made = self.graph[numbers.node]
        if made.op == "Range":
            size = source(self.graph, made.inputs[1], "Size")
            begins = is_constant(self.graph, made.inputs[0], 0) and is_constant(self.graph, made.inputs[2], 1)
            sizes = self.batches.of(gathered)
            counted = self.batches.of(size.inputs[0]) if size is not None else None
            if begins and sizes is not None and len(sizes) == 1 and counted == sizes:
                return gathered
        if made.op == "Unique" and numbers.port == 1 and skip(self.graph, gathered) == made.output(0):
            return made.inputs[0]
        return None

    def _weights_before_column(self, output: Output) -> Output | None:
        """Return the vector [n] that has the elements of a column [n, 1]."""
        node, sizes = self.graph[skip(self.graph, output).node], self.batches.of(output)
        known = node.op in {"ExpandDims", "Reshape"} and sizes is not None and len(sizes) == 2 and sizes[1] == 1
        before = self.batches.of(node.inputs[0]) if known else None
        return skip(self.graph, node.inputs[0]) if before is not None and len(before) == 1 else None

    def _sums_rows(self, node: Node) -> bool:
        """Return whether a Sum gives one number for each row."""
        before, axes = self.batches.of(node.inputs[0]), constant_list(self.graph, node.inputs[1])
        if before is None or axes is None:
            return False
        gone = {axis % len(before) for axis in axes}
        return 0 not in gone and all(axis in gone or size == 1 for axis, size in enumerate(before[1:], 1))

    def _default_key(self, numbers: Numbers, fill: Node) -> int | str | None:
        """Return the key of the default id, which fills rows without a value."""
        default = constant(self.graph, fill.inputs[3])
        before = self.keys.walk(self._ids_before_drop(fill), shaped=False)[1]
        if default is None or len(numbers.key.steps) != len(before):
            return None
        value = default.reshape(-1)[0]
        return value.decode() if isinstance(value, bytes) else int(value)

    def _ids_before_drop(self, fill: Node) -> Output:
        gather = source(self.graph, fill.inputs[1], "GatherNd")
        return fill.inputs[1] if gather is None else gather.inputs[0]
