# SPDX-License-Identifier: Apache-2.0
"""Check that the published schemas are generated from the dataclasses, with their types and docstrings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from graph_tools.json_data import Count, Report, as_data, reported
from helpers.system.tool_modules import load_tool


@pytest.fixture(scope="module")
def make_schemas() -> ModuleType:
    return load_tool("make_schemas")


@dataclass
class _Part:
    """A part."""

    class_: str
    rows: Count | None = None
    _kept: object = None
    hidden: object = field(default=None, metadata={"hidden": True})


@dataclass
class _Whole(Report):
    """A whole.

    Attributes
    ----------
    parts : list of _Part
        Its parts; None in one: unknown.
    """

    SCHEMA = "whole/1"

    parts: list[_Part]
    more: int | None = field(default=None, metadata={"optional": True})

    @property
    @reported
    def size(self) -> Count:
        """How many parts it has."""
        return len(self.parts)


def test_schemas_are_current(make_schemas: ModuleType, repository: Path) -> None:
    for path, text in make_schemas.current().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(repository)}: run `make docs`"


def test_schema_has_the_members_of_the_report(make_schemas: ModuleType) -> None:
    make_schemas.DOCUMENTS["whole"] = (_Whole, "A whole thing")
    schema = make_schemas.schema_of("whole")
    part = schema["$defs"]["_Part"]
    data = as_data(_Whole([_Part("a", 2)], 3))
    assert list(schema["properties"]) == list(data) == ["schema", "size", "parts", "more"]
    assert list(part["properties"]) == list(data["parts"][0]) == part["required"] == ["class", "rows"]
    assert schema["required"] == ["schema", "size", "parts"]
    assert (schema["additionalProperties"], part["additionalProperties"]) == (False, False)


def test_schema_contains_types_and_docstrings(make_schemas: ModuleType) -> None:
    make_schemas.DOCUMENTS["whole"] = (_Whole, "A whole thing")
    schema = make_schemas.schema_of("whole")
    assert (schema["title"], schema["$id"]) == ("A whole thing", "whole.schema.json")
    assert schema["properties"]["schema"] == {"const": "whole/1"}
    assert schema["properties"]["size"] == {"type": "integer", "minimum": 0, "description": "How many parts it has."}
    assert schema["properties"]["parts"]["description"] == "Its parts; null in one: unknown."
    rows = schema["$defs"]["_Part"]["properties"]["rows"]
    assert rows["anyOf"] == [{"type": "integer", "minimum": 0}, {"type": "null"}]
