# SPDX-License-Identifier: Apache-2.0
"""What an export contains, by the names that deltas use, and its lineage.

`assets.extra/elastic_training/contents.json`:

    {"schema": "elastic_training/1",
     "tables": [{"table": "user_id", "place": 0, "name": "user_id", "key": "int64", "dim": 16}],
     "variables": [{"variable": "dense/kernel", "place": 3, "name": "dense/kernel", "shape": [16, 1]}]}

`name` is that of the table or variable in the export, `place` its place among those of the model.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from elastic_training.layers.parts_of_model import tables_of, weights_of

SCHEMA = "elastic_training/1"
PLACE = Path("assets.extra") / "elastic_training" / "contents.json"


@dataclass(frozen=True)
class TableName:
    """A table of the model, and its name in the export."""

    table: str
    place: int
    name: str
    key: str
    dim: int


@dataclass(frozen=True)
class VariableName:
    """A weight of the model, and its name in the export."""

    variable: str
    place: int
    name: str
    shape: list[int]


@dataclass(frozen=True)
class Contents:
    """Names of tables and variables of an export."""

    tables: list[TableName]
    variables: list[VariableName]


def find_contents(path: Path, model: Any, module: Any, tables: Mapping[int, int]) -> Contents:
    """Return the names in an export that was written.

    Parameters
    ----------
    module : tf.Module
        What was saved: `variables_of_model` and `tables` by place.
    tables : {id of a table: its place in `module.tables`}
    """
    from graph_tools.readers import read_model

    read = read_model(path)
    handles = {tensor: handle for handle, tensors in read.tensor_names.items() for tensor in tensors}

    def handle(kind: str, place: int) -> str:
        for tensor, name in handles.items():
            if tensor.startswith(f"{kind}/{place}/"):
                return name
        raise ValueError(f"{path}: no checkpoint tensor of {kind}/{place}, expected one")

    named_tables = [
        TableName(table.name, place, handle("tables", tables[id(table)]), table.settings.key, table.dim)
        for place, table in enumerate(tables_of(model))
        if id(table) in tables
    ]
    places = {id(variable): place for place, variable in enumerate(weights_of(model))}
    named_variables = [
        VariableName(variable.name, places[id(variable)], handle("variables_of_model", i), list(variable.shape))
        for i, variable in enumerate(module.variables_of_model)
        if id(variable) in places and variable.dtype == tf.float32
    ]
    return Contents(named_tables, named_variables)


def write_contents(path: Path, contents: Contents) -> None:
    """Write the names into an export, and the beginning of a lineage."""
    from graph_tools.store.lineage import write_lineage
    from graph_tools.store.segment_layout import LINEAGE_BYTES
    from graph_tools.store.timeline import Position

    file = path / PLACE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"schema": SCHEMA, **asdict(contents)}, indent=1), encoding="utf-8")
    write_lineage(path, Position.start(secrets.token_bytes(LINEAGE_BYTES)))


def read_contents(path: Path) -> Contents:
    """Read the names of an export.

    Raises
    ------
    ValueError
        `export` did not write it.
    """
    file = path / PLACE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}, expected {SCHEMA!r}")
        return Contents(
            [TableName(**table) for table in data["tables"]], [VariableName(**entry) for entry in data["variables"]]
        )
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}, expected an export of elastic_training") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: {error}, expected an export of elastic_training") from error
