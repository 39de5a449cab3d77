# SPDX-License-Identifier: Apache-2.0
"""Say in the words of this package what pydantic has found wrong: `NAME: FOUND found, expected WHAT`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_SHOWN = 60
_SECRET = {"token", "alert_webhook"}
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "finite_number": "a finite number",
    "bool": "true or false",
    "string": "a text",
    "bytes": "bytes",
    "path": "a path",
    "dict": "an object",
    "mapping": "an object",
    "model": "an object",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "none_required": "null",
}
_TYPES = {str: "a text", list: "a list", dict: "an object", int: "a number", float: "a number", type(None): "null"}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "of at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "of at most"),
}


def field_fault(fault: Mapping[str, Any], skipped: int = 0) -> str:
    """Describe one fault of a pydantic model.

    Parameters
    ----------
    fault : mapping
        An item of `ValidationError.errors()`: `type`, `loc`, `input`, `msg` and `ctx`.
    skipped : int
        So many parts of its location are left out.

    Returns
    -------
    str
        `NAME: FOUND found, expected WHAT`, without the name if it is about the whole value.
    """
    place = () if fault["type"] == "json_invalid" else tuple(fault.get("loc", ()))
    name = ".".join(str(part) for part in place[skipped:])
    return f"{name}: {_said(fault, bool(place) and place[-1] in _SECRET)}".removeprefix(": ")


def first_fault(error: Any) -> str:
    """Describe the first fault of a `ValidationError`."""
    return field_fault(error.errors(include_url=False)[0])


def expected(fault: Mapping[str, Any]) -> str:
    """Return what a fault's value should have been."""
    kind, context = str(fault["type"]), fault.get("ctx", {})
    if kind in _BOUNDS:
        key, how = _BOUNDS[kind]
        bound = context[key]
        return f"a number {how} {int(bound) if float(bound).is_integer() else bound}"
    if kind in {"literal_error", "enum"}:
        return str(context["expected"])
    if kind == "string_pattern_mismatch":
        return f"a text that matches {context['pattern']}"
    if kind in {"string_too_short", "string_too_long", "too_short", "too_long"}:
        least = kind.endswith("short")
        number = context["min_length" if least else "max_length"]
        if (kind, number) == ("string_too_short", 1):
            return "a text that is not empty"
        what = "a text of" if kind.startswith("string") else "a list or an object of"
        return f"{what} at {'least' if least else 'most'} {number} {'characters' if 'string' in kind else 'items'}"
    whole = kind == "int_from_float"
    stem = kind.removesuffix("_attributes_type").removesuffix("_type").removesuffix("_parsing")
    return "an integer" if whole or kind == "int_parsing_size" else _KINDS.get(stem, "")


def _said(fault: Mapping[str, Any], is_secret: bool) -> str:
    kind, context = str(fault["type"]), fault.get("ctx", {})
    if kind == "missing":
        return "nothing found, expected a value"
    if kind == "extra_forbidden":
        return "unknown member found, expected none of this name"
    if kind == "json_invalid":
        return f"no JSON found ({context.get('error', fault['msg'])}), expected JSON"
    if kind in {"value_error", "assertion_error"}:
        # Written by this package.
        return str(context["error"])
    what = expected(fault)
    # What is found instead of an object may contain a secret.
    hidden = is_secret or what == _KINDS["dict"]
    found = _TYPES.get(type(fault.get("input")), "a value") if hidden else _shown(fault.get("input"))
    if kind in {"too_short", "too_long"}:
        found = f"{context['actual_length']} items"
    return f"{found} found, expected {what}" if what else f"{found} found, {fault['msg']}"


def _shown(value: Any) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
