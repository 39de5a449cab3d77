# SPDX-License-Identifier: Apache-2.0
"""Define the reports of `delta`: the content of segments and timelines, and what was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from graph_tools.json_data import Count, JsonSchema, Positive, Report, Sha256

KeyKind = Annotated[str, JsonSchema(enum=["row_number", "int64", "string"])]
Lineage = Annotated[str, JsonSchema(type="string", pattern="^[0-9a-f]{32}$")]


@dataclass
class TableChanges:
    """The changes of a table in a segment.

    Attributes
    ----------
    key_kind : str
        Kind of its keys.
    dim : int
        Length of a row.
    changed : int
        Number of keys whose rows are new or have changed.
    deleted : int
        Number of keys that are no longer in the table.
    default_rows : int
        Number of default rows that have changed.
    not_finite : int
        Number of changed rows and default rows with a NaN or an infinity, which servers refuse by default.
    """

    name: str
    key_kind: KeyKind
    dim: Positive
    changed: Count
    deleted: Count
    default_rows: Count
    not_finite: Count


@dataclass
class VariableChange:
    """A variable that a segment gives a new value.

    Attributes
    ----------
    not_finite : int
        Number of elements that are NaN or infinite.
    """

    name: str
    shape: list[Count]
    not_finite: Count


@dataclass
class SegmentInfo:
    """A segment that has passed all checks.

    Attributes
    ----------
    previous, chain : str
        Chain hashes of the epoch before the first one, and of the last one.
    event_time : int or None
        The time of the newest sample that the trainer had seen [µs since 1970].
    write_time : int
        When the segment was written [µs since 1970].
    streams : dict of str to int
        What the trainer had read: the position of the next message, by stream.
    """

    file: str
    bytes: Count
    lineage: Lineage
    first_epoch: Positive
    last_epoch: Positive
    term: Positive
    previous: Sha256
    chain: Sha256
    event_time: int | None
    write_time: int
    tables: list[TableChanges]
    variables: list[VariableChange]
    streams: dict[str, Count]


@dataclass
class DeltaInspectReport(Report):
    """The report of `graph-tools delta inspect`.

    Attributes
    ----------
    path : str
        The segment or the folder of the timeline.
    lineage : str or None
        The lineage of all segments; None: there are no segments.
    epoch : int
        The last epoch.
    terms : list of int
        The writers that have begun.
    segments : list of SegmentInfo
        In the order in which a reader reads them, up to a fault.
    fault : str or None
        Why a reader stops before the end of the timeline.
    """

    SCHEMA = "delta_inspect_report/1"

    path: str
    lineage: Lineage | None
    epoch: Count
    terms: list[Positive]
    segments: list[SegmentInfo] = field(default_factory=list)
    fault: str | None = None


@dataclass
class DeltaWriteReport(Report):
    """The report of `graph-tools delta make` and `compact`.

    Attributes
    ----------
    segment : SegmentInfo
        The segment that was written.
    replaced : list of str
        Files that were deleted, since the new segment has their epochs.
    seconds : float
        Time that it took.
    """

    SCHEMA = "delta_write_report/1"

    segment: SegmentInfo
    replaced: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class DeltaTruncateReport(Report):
    """The report of `graph-tools delta truncate`.

    Attributes
    ----------
    path : str
        The folder of the timeline.
    epoch : int
        The last epoch that stayed.
    term : int
        The term of the truncation, which stops earlier writers.
    withdrawn : list of str
        New names of the withdrawn files, the newest first.
    """

    SCHEMA = "delta_truncate_report/1"

    path: str
    epoch: Count
    term: Positive
    withdrawn: list[str]
