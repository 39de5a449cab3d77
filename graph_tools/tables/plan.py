# SPDX-License-Identifier: Apache-2.0
"""Decide how to store each table, from one pass over its rows, and compute the bytes for each way to store it."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_tools.errors import ConversionError
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.live import plain
from graph_tools.model import Model
from graph_tools.model.stored_table import EVERYTHING, Reach
from graph_tools.model.table_record import AbsentValue, TableRecord, UnusedTensor
from graph_tools.model.table_size import TableSize
from graph_tools.model.tables import SparseTable
from graph_tools.options import ROW_TYPES, CutOptions
from graph_tools.store.rows import refusal
from graph_tools.tables.absent import AbsentPolicy, absent_policy
from graph_tools.tables.absent_keys import base_name
from graph_tools.tables.analysis import Analysis, Progress, analyze
from graph_tools.tables.blocks import TableRows, of_sparse_table, of_variable
from graph_tools.tables.checks import check_distinct, check_shapes
from graph_tools.tables.costs import Counts, Layout, layouts, stored_rows, table_bytes
from graph_tools.tables.duplicates import SharedRows, share_rows
from graph_tools.tables.plain import PlainTable, plain_tables
from graph_tools.tables.reachable_rows import reachable
from graph_tools.tables.table_sizes import planned_size
from graph_tools.tensors import element_bytes

# An index in front of a variable costs time in each request, so it must save enough.
_LEAST_SAVED_BYTES = 4096
_LEAST_SAVED_SHARE = 0.1
# Largest number of passes over a table to write its rows in the order of their keys.
_MOST_PASSES = 4


@dataclass
class TablePlan:
    """How a table is stored.

    Attributes
    ----------
    name : str
        Name of the handle node: key of `Model.sparse_tables` or `Model.variables`.
    source : TableRows
    analysis : Analysis
    policy : AbsentPolicy or None
        None: a plain variable.
    counts : Counts
    layout : Layout
    row_type : str
    shared : SharedRows or None
        Set if `layout.share` is `equal`.
    reach : Reach
        Keys that the graph can look up.
    window_bytes : int
        Memory for writing rows in the order of their keys.
    forecast : dict of str to int [bytes]
        Bytes of the table for each row type.
    reasons : list of str
        Why the table is stored in this way, and not in another.
    misplaced : int
        Number of keys in the export that are not in `source`; see `SparseTable`.
    """

    name: str
    source: TableRows
    analysis: Analysis
    policy: AbsentPolicy | None
    counts: Counts
    layout: Layout
    row_type: str
    shared: SharedRows | None = None
    reach: Reach = EVERYTHING
    window_bytes: int = 0
    dropped_tensors: list[tuple[str, int, str]] = field(default_factory=list)
    forecast: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    misplaced: int = 0

    @property
    def low(self) -> int:
        """Key of row 0, if rows are in the order of their keys."""
        return 0 if self.source.plain else self.analysis.low or 0

    @property
    def needs_missing(self) -> bool:
        """True if a lookup must know whether a key is absent, in addition to its row."""
        return self.policy is not None and (self.counts.absent > 1 or not self.policy.unanimous)

    @property
    def bytes(self) -> int:
        return table_bytes(self.layout, self.counts, self.row_type)

    @property
    def changes(self) -> bool:
        """True if the table is stored differently than it was exported; sparse tables always are."""
        as_it_was = self.layout.name == "direct" and self.row_type == "fp32" and self.counts.span == self.analysis.rows
        return not (self.source.plain and as_it_was)

    @property
    def lossy_rows(self) -> int:
        """Number of rows whose value changes by more than the rounding of the row type."""
        dropped = sum(self.analysis.dropped.get(reason, 0) for reason in ("below_norm", "below_frequency"))
        return dropped + (self.analysis.shrunk if self.layout.share != "none" else 0)

    def _file_size(self, absent: AbsentValue | None) -> TableSize:
        """Return the size of the file that `fuse` makes of the stored table."""
        zeros = absent is not None and absent.kind == "zero"
        return planned_size(self.layout, self.counts, self.row_type, self.source.string_keys, zeros)

    def record(self) -> TableRecord:
        """Return a description of the plan for the report."""
        found, source = self.analysis, self.source
        key_bytes = 0 if source.key_dtype is None else element_bytes(source.key_dtype)
        misplaced_bytes = self.misplaced * (key_bytes + source.dim * source.dtype.itemsize)
        absent = None
        if self.policy is not None:
            value = self.policy.absent
            rows = 0 if value.rows is None else len(value.rows)
            absent = AbsentValue(value.kind, rows, value.source, len(self.policy.by_input))
        return TableRecord(
            name=source.name,
            family=source.family,
            kind="variable" if source.plain else "sparse",
            keys=found.rows + self.misplaced,
            dim=source.dim,
            source_dtype=str(source.dtype),
            source_bytes=source.source_bytes + misplaced_bytes,
            dropped_tensors=[UnusedTensor(*tensor) for tensor in self.dropped_tensors],
            zero_rows=found.zero_rows,
            equal_absent=found.equal_absent,
            duplicates=found.duplicates,
            duplicates_exact=found.duplicates_exact,
            below_norm=found.below_norm,
            below_frequency=found.below_frequency,
            dropped=found.dropped | ({"misplaced": self.misplaced} if self.misplaced else {}),
            lossy_rows=self.lossy_rows,
            kept_keys=found.kept,
            stored_rows=stored_rows(self.layout, self.counts),
            layout=self.layout.name,
            share=self.layout.share,
            dtype=self.row_type,
            absent=absent,
            forecast=dict(self.forecast),
            bytes=self.bytes,
            file=self._file_size(absent),
            reasons=list(self.reasons),
        )


def plan_sparse(
    model: Model, name: str, table: SparseTable, options: CutOptions, progress: Progress | None = None
) -> TablePlan:
    """Plan a sparse table.

    Raises
    ------
    UnreadableError
        Keys and rows differ in number or type, a key occurs twice, or a value is not finite.
    ConversionError
        The absent value depends on the remainder of the key, but the keys are strings.
    """
    check_shapes(table, may_be_empty=True)
    check_distinct(table, options.memory_limit // 8)
    policy = absent_policy(model.graph, name, table, model.live is not None)
    absent = 1 if policy.absent.rows is None else len(policy.absent.rows)
    if absent > 1 and table.key_dtype.kind == "O":
        raise ConversionError(f"table '{table.name}': string keys and {absent} default rows, expected one default row")
    reach = EVERYTHING if model.live else reachable(model, [node.inputs[0] for node in lookups(model.graph, name)])
    source = of_sparse_table(table)
    # A row that equals a default row differs from it once this one changes.
    changes = model.live is not None and policy.absent.rows is not None
    equal_absent = policy.absent if policy.unanimous and not changes else None
    found = analyze(source, equal_absent, reach, options, progress)
    span = 0 if found.low is None or found.high is None else found.high - found.low + 1
    as_it_is = model.live is not None or table.keeps_order
    plan = _make_plan(name, source, found, policy, _counts(found, source, span, absent), options, as_it_is)
    plan.reach = reach
    plan.dropped_tensors, plan.misplaced = list(table.dropped_tensors), table.misplaced
    if not policy.unanimous and found.zero_rows:
        plan.reasons.append("rows equal to the absent value stay: lookups give absent keys different values")
    elif policy.absent.kind != "zero" and found.zero_rows:
        plan.reasons.append(f"zero rows stay: absent keys are given another value ({policy.absent.source})")
    return plan


def plan_variable(model: Model, table: PlainTable, options: CutOptions, progress: Progress | None = None) -> TablePlan:
    """Plan a plain variable."""
    source = of_variable(table.handle, plain(model.variables[table.handle]))
    # A row that no request reads now may have a key later.
    reach = EVERYTHING if model.live else reachable(model, table.ids(model))
    # A range without any row comes from a part of the graph that never runs or always fails.
    if (reach.high is not None and reach.high < 0) or (reach.low is not None and reach.low >= source.count):
        reach = type(reach)()
    found = analyze(source, None, reach, options, progress)
    span = source.count if reach.high is None else min(source.count, reach.high + 1)
    counts = _counts(found, source, span, 0)
    plan = _make_plan(table.handle, source, found, None, counts, options, model.live is not None)
    plan.reach = reach
    if found.dropped.get("dead"):
        plan.reasons.append(f"{found.dropped['dead']} rows are dead: no index that the graph can make reaches them")
    return plan


def _counts(found: Analysis, source: TableRows, span: int, absent: int) -> Counts:
    distinct = found.own.count - (found.duplicates if found.duplicates_exact else 0)
    return Counts(found.kept, found.own.count, distinct, span, found.key_bytes, absent, source.dim, source.dtype)


def _make_plan(
    name: str,
    source: TableRows,
    found: Analysis,
    policy: AbsentPolicy | None,
    counts: Counts,
    options: CutOptions,
    live: bool = False,
) -> TablePlan:
    reasons = list(found.notes)
    forecast = {}
    for candidate in ROW_TYPES:
        possible = "fp32" if refusal(candidate, source.dim, source.dtype, found.largest) else candidate
        layout = _cheapest(source, found, policy, counts, possible, options, live)
        forecast[candidate] = table_bytes(layout, counts, possible)
    row_type = options.row_type(source.name)
    refused = refusal(row_type, source.dim, source.dtype, found.largest)
    if refused:
        reasons.append(refused)
        row_type = "fp32"
    layout = _cheapest(source, found, policy, counts, row_type, options, live)
    plan = TablePlan(name, source, found, policy, counts, layout, row_type)
    plan.window_bytes = options.memory_limit // 8
    if layout.share == "equal" and found.hashes is not None:
        _share(plan, options)
    elif found.duplicates and found.duplicates_few:
        reasons.append(f"about {found.duplicates} duplicate rows are not shared: they are less than one in a hundred")
    elif found.duplicates and not found.duplicates_exact:
        reasons.append(f"about {found.duplicates} duplicate rows are not shared: finding them exceeds the memory limit")
    elif found.duplicates:
        reasons.append(f"{found.duplicates} duplicate rows are not shared: the index would take more than they do")
    found.hashes = None
    plan.forecast, plan.reasons = forecast, reasons
    return plan


def _share(plan: TablePlan, options: CutOptions) -> None:
    """Find the duplicates; share them only if enough rows are really equal."""
    found = plan.analysis
    assert found.hashes is not None
    shared = share_rows(plan.source, found.own, found.hashes.hashes(), options.memory_limit // 8)
    found.duplicates = found.own.count - shared.first.count
    plan.counts = _counts(found, plan.source, plan.counts.span, plan.counts.absent)
    plan.layout = _cheapest(plan.source, found, plan.policy, plan.counts, plan.row_type, options)
    plan.shared = shared if plan.layout.share == "equal" else None


def _cheapest(
    source: TableRows,
    found: Analysis,
    policy: AbsentPolicy | None,
    counts: Counts,
    row_type: str,
    options: CutOptions,
    live: bool = False,
) -> Layout:
    """Return the layout with the fewest bytes; of equal ones the simplest. A variable's index must save a tenth.

    In a live model each key has its own row, and any key may be added.
    """
    if live:
        return Layout("direct" if source.plain else "hashed")
    integers = not source.string_keys
    row = source.dim * source.dtype.itemsize
    in_order = found.ascending or counts.span * row <= _MOST_PASSES * options.memory_limit // 8
    possible = layouts(
        counts,
        plain=source.plain,
        direct=integers and in_order,
        indexed=integers and 4 * counts.span <= options.memory_limit // 4,
        gaps=policy is None or policy.unanimous,
    )
    best = min(possible, key=lambda layout: table_bytes(layout, counts, row_type))
    if source.plain and best.name == "remap":
        now = table_bytes(possible[0], counts, row_type)
        saved = now - table_bytes(best, counts, row_type)
        if saved < _LEAST_SAVED_BYTES or saved < _LEAST_SAVED_SHARE * now:
            return possible[0]
    return best


def forecast(model: Model, options: CutOptions, progress: Progress | None = None) -> list[TableRecord]:
    """Describe how every table of a model would be stored, with the bytes for each row type; the model is not changed.

    Raises
    ------
    UsageError
        An option names a table that does not exist.
    UnreadableError
        A table's values are damaged.
    """
    check_names(model, options)
    records = [plan_sparse(model, *item, options, progress).record() for item in sorted(model.sparse_tables.items())]
    tables, _ = plain_tables(model)
    return records + [plan_variable(model, table, options, progress).record() for table in tables]


def check_names(model: Model, options: CutOptions) -> None:
    """Raise `UsageError` if an option names a table that does not exist and did not exist before the conversion."""
    tables, refused = plain_tables(model)
    names = {table.handle for table in tables} | {name for name, _ in refused}
    names |= {table.name for table in model.sparse_tables.values()} | {record.name for record in model.table_records}
    options.check_names(names | {base_name(name) for name in names}, model.merged_tables)
