# SPDX-License-Identifier: Apache-2.0
"""Let commands share options: a parameter of a command may be a dataclass, whose fields are options."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_type_hints

Returned = TypeVar("Returned")


def with_groups(command: Callable[..., Returned]) -> Callable[..., Returned]:
    """Return a command that has the fields of its dataclasses as parameters, in the form that typer reads."""
    types = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: type_ for name, type_ in types.items() if dataclasses.is_dataclass(type_)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        own = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[name])
        parameters += _parameters(groups[name]) if name in groups else [own]

    @functools.wraps(command)
    def run(**values: Any) -> Returned:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        return command(**values, **made)

    vars(run)["__signature__"] = inspect.Signature(parameters, return_annotation=types["return"])
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def given(group: Any) -> dict[str, Any]:
    """Return the values of a dataclass that are not None, as arguments of a function with defaults of its own."""
    return {name: value for name, value in vars(group).items() if value is not None}


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name]
        )
