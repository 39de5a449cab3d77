# SPDX-License-Identifier: Apache-2.0
"""The manifest inside an artefact: where it comes from, what was done, and what its files are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graph_tools.json_data import as_data
from graph_tools.report.cut import CutReport, is_lossy
from graph_tools.report.fuse import FuseReport
from graph_tools.verbs.precision import as_manifest

SCHEMA = "manifest/1"
PLACE = Path("assets.extra") / "recprocessor" / "manifest.json"


def write_manifest(report: CutReport, folder: Path, digests: Mapping[Path, str] | None = None) -> None:
    """Write `assets.extra/recprocessor/manifest.json` into an artefact.

    Parameters
    ----------
    report : CutReport
    folder : Path
    digests : mapping of Path to str, optional
        SHA-256 of files of the artefact that need not be read for it.

    Raises
    ------
    OSError
    """
    known = digests or {}
    manifest = {
        "schema": SCHEMA,
        "tool": {"name": "graph-tools", "version": report.tool_version},
        "source": {"path": report.source.path, "kind": report.source.kind, "bytes": report.source.bytes},
        "options": report.options,
        "passes": [{"name": one.name, "applied": one.applied} for one in report.passes],
        "lossy": report.lossy,
        "tables": [_table(one) for one in report.tables],
        "verification": _verification(report),
        "fused": isinstance(report, FuseReport),
        "files": {file.relative_to(folder).as_posix(): known.get(file) or sha256(file) for file in _files(folder)},
    }
    if isinstance(report, FuseReport):
        manifest |= _fused(report)
    place = folder / PLACE
    place.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(as_data(manifest), indent=2, sort_keys=True, allow_nan=False)
    place.write_text(text + "\n", encoding="utf-8")


def _fused(report: FuseReport) -> dict[str, Any]:
    """Return what libprocessor reads when it loads the artefact, and how it came about."""
    return {
        "requires": report.requires,
        "precision": None if report.precision is None else as_manifest(report.precision),
        "table_files": [
            {key: value for key, value in vars(one).items() if key not in {"shared", "notes"}}
            for one in report.table_files
        ],
        "user_inputs": report.user_inputs,
        "fusing": [
            {"name": one.name, "applied": one.applied, "refused": len(one.refused), "sites": as_data(one.sites)}
            for one in report.fused
        ],
    }


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.relative_to(folder) != PLACE)


def _table(record: dict[str, Any]) -> dict[str, Any]:
    wanted = ("name", "family", "layout", "dtype", "absent", "stored_rows", "lossy_rows")
    return {key: record[key] for key in wanted} | {"lossy": is_lossy(record)}


def _verification(report: CutReport) -> dict[str, Any] | None:
    """Keep the verdict and the differences; the requests are in the report."""
    found = report.verification
    if found is None:
        return None
    wanted = ("passed", "bit_exact", "tolerance", "requests", "rows", "outputs", "seed")
    return {"scores_judged": report.scores_judged} | {key: found[key] for key in wanted}


def sha256(file: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
