# SPDX-License-Identifier: Apache-2.0
"""Write the manifest of an artifact: its source, the conversion, and its files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from graph_tools.json_data import Count, JsonSchema, Report, Sha256, summary
from graph_tools.model.table_record import AbsentValue
from graph_tools.options import CutOptions, RowType
from graph_tools.report.cut import CutReport
from graph_tools.report.fuse import FuseReport, Requirements, Site
from graph_tools.report.live import Live
from graph_tools.report.precision import DecidedInt8, DecidedPrecision, Precision
from graph_tools.report.table_files import TableFileRecord
from graph_tools.verification.compare import OutputComparison, Tolerance

PLACE = Path("assets.extra") / "recprocessor" / "manifest.json"


@dataclass
class Tool:
    """The tool that wrote the artifact."""

    version: str
    name: str = "graph-tools"


@dataclass
class Source:
    """The model that the artifact was made from."""

    path: str
    kind: str
    bytes: Count


@dataclass
class AppliedPass:
    """Number of sites that a pass has rewritten."""

    name: str
    applied: Count


@dataclass
class FusingPass(AppliedPass):
    """Result of a fusing pass.

    Attributes
    ----------
    refused : int
        Sites that were not changed.
    """

    refused: Count
    sites: list[Site]


@dataclass
class TableSummary:
    """How a table is stored.

    Attributes
    ----------
    absent : AbsentValue or None
        Value of keys that the table does not contain; None: the table is a plain variable.
    """

    name: str
    family: str
    layout: str
    dtype: RowType
    absent: AbsentValue | None
    stored_rows: Count
    lossy_rows: Count
    lossy: bool


@dataclass
class VerificationSummary:
    """The verdict of the verification and the differences; the requests are in the report.

    Attributes
    ----------
    scores_judged : bool
        False: differences between scores were measured, but not judged.
    """

    passed: bool
    scores_judged: bool
    bit_exact: bool
    tolerance: Tolerance
    requests: Count
    rows: Count
    seed: int
    outputs: list[OutputComparison]


@dataclass(kw_only=True)
class Manifest(Report):
    """assets.extra/recprocessor/manifest.json that `graph-tools cut` writes.

    Attributes
    ----------
    lossy : bool
        Scores may differ from the source's; `verification` reports by how much.
    verification : VerificationSummary or None
        None: not verified.
    fused : bool
        True if it has ops of libprocessor.
    files : dict of str to str
        SHA-256 of every other file of the artifact.
    """

    SCHEMA = "manifest/1"

    tool: Tool
    source: Source
    options: CutOptions
    passes: list[AppliedPass]
    lossy: bool
    tables: list[TableSummary]
    verification: VerificationSummary | None
    fused: Annotated[bool, JsonSchema(const=False)] = False
    files: dict[str, Sha256]


@dataclass(kw_only=True)
class FusedManifest(Manifest):
    """assets.extra/recprocessor/manifest.json that `graph-tools fuse` and `optimize` write.

    Attributes
    ----------
    precision : DecidedPrecision
        Precision of the dense layers.
    user_inputs : list of str
        Inputs that describe the user, if rows are items: they may have one row, or one row per item.
    fusing : list of FusingPass
        Result of each fusing pass, in order.
    live : Live or None
        What the model follows while it is served; None: it does not change.
    """

    fused: Annotated[bool, JsonSchema(const=True)] = True
    requires: Requirements
    precision: DecidedPrecision
    table_files: list[TableFileRecord]
    user_inputs: list[str]
    fusing: list[FusingPass]
    live: Live | None


def write_manifest(report: CutReport, folder: Path, digests: Mapping[Path, str] | None = None) -> None:
    """Write `assets.extra/recprocessor/manifest.json` into an artifact.

    Parameters
    ----------
    report : CutReport
    folder : Path
    digests : mapping of Path to str, optional
        Known SHA-256 of files of the artifact, which are then not read again.

    Raises
    ------
    OSError
    """
    known = digests or {}
    files = {file.relative_to(folder).as_posix(): known.get(file) or sha256(file) for file in _files(folder)}
    place = folder / PLACE
    place.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_manifest(report, files).to_json(), indent=2, sort_keys=True, allow_nan=False)
    place.write_text(text + "\n", encoding="utf-8")


def _manifest(report: CutReport, files: dict[str, str]) -> Manifest:
    verification = None
    if report.verification is not None:
        verification = summary(VerificationSummary, report.verification, scores_judged=report.scores_judged)
    common = Manifest(
        tool=Tool(report.tool_version),
        source=summary(Source, report.source),
        options=report.options,
        passes=[summary(AppliedPass, result) for result in report.passes],
        lossy=report.lossy,
        tables=[summary(TableSummary, table) for table in report.tables],
        verification=verification,
        files=files,
    )
    if not isinstance(report, FuseReport):
        return common
    return FusedManifest(
        **vars(common) | {"fused": True},
        requires=report.requires,
        precision=_precision(report.precision),
        table_files=[summary(TableFileRecord, file) for file in report.table_files],
        user_inputs=report.user_inputs,
        fusing=[summary(FusingPass, result, refused=len(result.refused)) for result in report.fused],
        live=report.live,
    )


def _precision(found: Precision | None) -> DecidedPrecision:
    int8 = None if found is None or found.int8 is None else summary(DecidedInt8, found.int8)
    return summary(DecidedPrecision, found, int8=int8)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.relative_to(folder) != PLACE)


def sha256(file: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
