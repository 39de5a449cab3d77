# SPDX-License-Identifier: Apache-2.0
"""Write the JSON Schemas of reports in docs/schemas from the dataclasses that define them.

    python -m tools.make_schemas            writes the files
    python -m tools.make_schemas --check    fails if a file is out of date

The type of a member becomes its schema, unless an `Annotated` type gives one. Its description is the text about the
attribute in the docstring of the dataclass. The schemas of `desired.json` and `actual.json` are written by hand, since
hosts define these files in C++.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema, create_model
from pydantic.json_schema import GenerateJsonSchema

from cost_model.fleet.report import PlacementReport
from cost_model.fleet.simulation_report import FleetSimulationReport
from cost_model.planning.report import PlanReport
from graph_tools.json_data import members
from graph_tools.report.compress import CompressReport
from graph_tools.report.convert import ConvertReport
from graph_tools.report.cut import CutReport
from graph_tools.report.delta import DeltaInspectReport, DeltaTruncateReport, DeltaWriteReport
from graph_tools.report.diff import DiffReport
from graph_tools.report.fuse import FuseReport
from graph_tools.report.inspect import InspectReport
from graph_tools.report.manifest import FusedManifest, Manifest
from graph_tools.verification.report import VerifyReport

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "schemas"
DOCUMENTS = {
    "compress_report": (CompressReport, "What `graph-tools compress` did"),
    "convert_report": (ConvertReport, "What `graph-tools convert` wrote: the tables.json of its folder"),
    "cut_report": (CutReport, "What `graph-tools cut` did"),
    "delta_inspect_report": (DeltaInspectReport, "What `graph-tools delta inspect` found"),
    "delta_truncate_report": (DeltaTruncateReport, "What `graph-tools delta truncate` withdrew"),
    "delta_write_report": (DeltaWriteReport, "What `graph-tools delta make` or `compact` wrote"),
    "diff_report": (DiffReport, "What `graph-tools diff` found"),
    "fleet_simulation": (FleetSimulationReport, "What `cost-model simulate --machines` found"),
    "fuse_report": (FuseReport, "What `graph-tools fuse` or `optimize` did"),
    "inspect_report": (InspectReport, "What `graph-tools inspect` found"),
    "manifest": (
        Manifest | FusedManifest,
        "assets.extra/recprocessor/manifest.json of what `graph-tools cut`, `fuse` and `optimize` write",
    ),
    "placement": (PlacementReport, "What `cost-model place` decided: which models are on which machines"),
    "plan": (PlanReport, "What `cost-model plan` decided"),
    "verify_report": (VerifyReport, "What `graph-tools verify` found"),
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_WIDTH = 110
_ATTRIBUTE = re.compile(r"^    (\w[\w, ]*) : .*\n((?:^(?: {8}.*)?(?:\n|\Z))*)", re.MULTILINE)


class _Schema(GenerateJsonSchema):
    """Omit the titles that pydantic creates from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return {key: value for key, value in super().model_schema(schema).items() if key != "title"}


def descriptions(kind: type) -> dict[str, str]:
    """Return the texts about each attribute in the docstrings of a dataclass, its parents and its properties."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        _, _, section = (base.__doc__ or "").partition("Attributes\n    ----------\n")
        for names, text in _ATTRIBUTE.findall(section):
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
        properties = {name: value for name, value in vars(base).items() if isinstance(value, property)}
        found |= {name: str(value.__doc__).partition("\n")[0] for name, value in properties.items()}
    # JSON has null instead of None.
    return {name: re.sub(r"\bNone\b", "null", text) for name, text in found.items() if text}


@cache
def model_of(kind: Any) -> type[BaseModel]:
    """Return a pydantic model with the members of a dataclass's JSON."""
    hints, texts = get_type_hints(kind, include_extras=True), descriptions(kind)
    optional = {field.name for field in dataclasses.fields(kind) if field.metadata.get("optional")}
    fields: dict[str, Any] = {}
    for name, attribute in members(kind).items():
        getter = getattr(kind, attribute, None)
        hint = (
            get_type_hints(getter.fget, include_extras=True)["return"]
            if isinstance(getter, property)
            else hints[attribute]
        )
        settings: dict[str, Any] = {"alias": name, "description": texts.get(attribute)}
        if attribute in optional:
            hint = reduce(or_, (part for part in get_args(hint) if part is not NoneType))
            settings["default_factory"] = dict
        # pydantic itself defines some of the names.
        fields[f"{name}_"] = (pydantic_type(hint), Field(**settings))
    if hasattr(kind, "SCHEMA"):
        fields = {"schema_": (Annotated[str, WithJsonSchema({"const": kind.SCHEMA})], Field(alias="schema"))} | fields
    config = ConfigDict(extra="forbid")
    return create_model(kind.__name__, __config__=config, __doc__=kind.__doc__.partition("\n")[0], **fields)


def pydantic_type(hint: Any) -> Any:
    """Return a type with dataclasses replaced by models, and JSON Schemas by a form that pydantic understands."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return model_of(hint)
    if hint is Path:
        return str
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[pydantic_type(arguments[0]), WithJsonSchema(dict(arguments[1]))]
    if origin in {Union, UnionType}:
        return reduce(or_, map(pydantic_type, arguments))
    return origin[tuple(map(pydantic_type, arguments))] if origin else hint


def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of a report."""
    kind, title = DOCUMENTS[name]
    schema = TypeAdapter(pydantic_type(kind)).json_schema(schema_generator=_Schema)
    definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    head = {"$schema": _DIALECT, "$id": f"{name}.schema.json", "title": title}
    return head | {key: value for key, value in schema.items() if key != "description"} | definitions


def json_text(value: Any, indent: str = "") -> str:
    """Return JSON text in which everything that fits on one line is on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= _WIDTH or not isinstance(value, (dict, list)):
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + json_text(element, deeper) for element in value) + f"\n{indent}]"
    texts = [f"{deeper}{json.dumps(key)}: {json_text(element, deeper)}" for key, element in value.items()]
    return "{\n" + ",\n".join(texts) + f"\n{indent}}}"


def current() -> dict[Path, str]:
    """Return the text of each file."""
    return {FOLDER / f"{name}.schema.json": json_text(schema_of(name)) + "\n" for name in DOCUMENTS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="do not write; fail if a file is out of date")
    check = parser.parse_args().check
    texts = current()
    old = [path for path in texts if not path.exists() or path.read_text(encoding="utf-8") != texts[path]]
    for path in old:
        print(f"{path.relative_to(ROOT)}: {'out of date, run `make docs`' if check else 'written'}")
        if not check:
            path.write_text(texts[path], encoding="utf-8")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
