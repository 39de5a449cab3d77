# SPDX-License-Identifier: Apache-2.0
"""Write what a live model needs to follow deltas: the sources of its tables, and the formulas of its weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import ConversionError, UsageError
from graph_tools.graph import Output
from graph_tools.live import TableOrigin
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.report.live import FollowedTable, Live
from graph_tools.report.manifest import sha256
from graph_tools.rewriting.live_ops import INITIALIZER, LiveGraph, add_live_ops, nothing_changes, origin_of
from graph_tools.store.spec import TableSpec
from graph_tools.store.table_file import TableFile
from graph_tools.store.timeline import Position
from graph_tools.writer import write_graph

SCHEMA = "live/1"
DESCRIPTION, FORMULAS = "live.json", "formulas.pb"


def check_followable(options: CutOptions) -> None:
    """Raise `UsageError` for an option that drops rows which a trainer may change."""
    for option, given in (("--min-norm", options.min_norm), ("--min-frequency", options.min_frequency)):
        if given:
            raise UsageError(f"{option} {given}: drops rows that a delta may change, expected none with --live")


def make_live(
    model: Model, formulas: dict[str, Output], folder: Path, files: dict[str, TableFile], position: Position | None
) -> Live:
    """Make a written artifact live: add views to its ops, and write `live.json` and `formulas.pb` as assets.

    Parameters
    ----------
    model : Model
        The model as it was written.
    formulas : dict of str to Output
        The formulas of its variables, by handle.
    folder : Path
    files : dict of str to TableFile
        Its table files, by node.
    position : Position or None
        The place of the source in its timeline; None: it has no weights that can change.

    Raises
    ------
    ConversionError
        The model has something that may change, but cannot follow a change.
    """
    if position is None:
        raise nothing_changes(model)
    found = add_live_ops(model, formulas)
    PruneUnreachable().apply(model)
    assert model.live is not None
    assets = folder / "assets"
    assets.mkdir(exist_ok=True)
    (assets / FORMULAS).write_bytes(model.live.to_graph_def(found.formulas).SerializeToString(deterministic=True))
    description = _describe(model, found, assets, files, position)
    (assets / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    _add_initializer(model, found, assets)
    write_graph(model, folder, files)
    return Live(
        lineage=description["lineage"],
        epoch=position.epoch,
        tables=[FollowedTable(table["source"], table["key_kind"], table["dim"]) for table in description["tables"]],
        variables=[variable["source"] for variable in description["variables"]],
        formulas=len(found.formulas),
    )


def _add_initializer(model: Model, found: LiveGraph, assets: Path) -> None:
    """Add the node that reads the description when the model is loaded."""
    graph = model.graph
    digest = hashlib.sha256()
    for name in (DESCRIPTION, FORMULAS):
        digest.update(sha256(assets / name).encode())
    # A process may have one resource manager for several models.
    graph.set_attr(graph[found.handle.node], "shared_name", f"live/{digest.hexdigest()}")
    paths = [graph.add_const(name, f"live/{name}") for name in (DESCRIPTION, FORMULAS)]
    model.assets |= {path.node: assets / name for path, name in zip(paths, (DESCRIPTION, FORMULAS), strict=True)}
    inputs = [found.handle, *(Output(name) for name in found.tables), *paths]
    attrs = {"num_tables": len(found.tables)}
    model.init.append(graph.add(INITIALIZER, inputs, name="live/initialize", attrs=attrs).name)


def _describe(
    model: Model, found: LiveGraph, assets: Path, files: dict[str, TableFile], position: Position
) -> dict[str, Any]:
    assert model.live is not None
    sources = model.live.sources_of(found.formulas)
    tables = []
    for number, name in enumerate(found.tables):
        origin = origin_of(model, name)
        assert origin is not None
        tables.append(_table(origin, model.embedding_tables[name], assets / f"rows_{number}.int64", files[name]))
    served = {*sources, *(table["source"] for table in tables)}
    return {
        "schema": SCHEMA,
        "lineage": position.lineage.hex(),
        "epoch": position.epoch,
        "chain": position.chain.hex(),
        "tables": tables,
        "variables": [{"source": name, "shape": list(model.live.sources[name].shape)} for name in sources],
        "formulas": [
            {"name": f"f{number}", "inputs": [sources.index(name) for name in model.live.sources_of([output])]}
            for number, output in enumerate(found.formulas)
        ],
        "unserved": sorted(set(model.live.followed) - served),
    }


def _table(origin: TableOrigin, spec: TableSpec, rows_file: Path, file: TableFile) -> dict[str, Any]:
    """Describe a table, and write the numbers of its rows if they are not consecutive."""
    source = origin.source
    described = {"source": source.name, "key_kind": source.key_kind, "dim": spec.dim, "file": file.name}
    count = spec.rows.shape[0]
    defaults = np.array(origin.default_rows, np.int64)
    if source.key_kind != "row_number":
        constant = not source.defaults and bool(np.all(defaults == -1))
        if not constant and list(defaults) != list(range(source.defaults)):
            raise ConversionError(
                f"table '{source.name}': default rows {defaults.tolist()} of the source, expected all "
                f"{source.defaults} in their order"
            )
        return {**described, "first_row": 0, "rows": "same"}
    described["source_rows"] = source.rows
    after = origin.first_row + count
    if origin.rows is None and np.array_equal(defaults, np.arange(after, after + len(defaults))):
        return {**described, "first_row": origin.first_row, "rows": "same"}
    rows = np.arange(origin.first_row, after) if origin.rows is None else origin.rows
    np.concatenate([rows, defaults]).astype("<i8").tofile(rows_file)
    return {**described, "first_row": 0, "rows": {"asset": rows_file.name}}
