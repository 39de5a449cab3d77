# SPDX-License-Identifier: Apache-2.0
"""Make options of a verb from the declaration that the API uses: fields with a `CliOption` each, or a `CliGroup`."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from serving_proxy.cli.commands import Command, option, set_parameters
from serving_proxy.cli.options import json_object, place, seconds
from serving_proxy.errors import InvalidError
from serving_proxy.field_faults import field_fault
from serving_proxy.records.option import CliGroup, CliOption

_Settings = TypeVar("_Settings", bound=BaseModel)


@dataclass(frozen=True)
class _Declared:
    """An option: its field, the field that contains this field if that is a group, and how its value is read."""

    field: str
    group: str | None
    option: CliOption
    kind: type
    default: Any
    help: str

    @property
    def names(self) -> list[str]:
        """Return the spellings of the option."""
        return [self.flag] if self.option.alias is None else [self.flag, self.option.alias]

    @property
    def flag(self) -> str:
        return "--" + (self.option.name or self.field).replace("_", "-")

    @property
    def parameter(self) -> inspect.Parameter:
        """Return the parameter of the verb's function, in typer's form."""
        info: Any = typer.Option(
            *self.names,
            metavar=self.option.metavar,
            min=self.option.minimum,
            show_default=False,
            help=self.help,
        )
        typed: Any = list[str] if self.kind is list else self.kind
        annotation: Any = Annotated[typed if self.default is not None else typed | None, info]
        return option((self.option.name or self.field).replace("-", "_"), annotation, self.default)

    def read(self, value: Any) -> Any:
        """Convert the typed value to the value for the proxy."""
        if self.option.word is not None:
            return value if value == self.option.word else place(value)
        if self.option.nullable and value == "none":
            return None
        if self.option.is_duration:
            return seconds(value, self.flag)
        if self.option.nullable:
            return _number(value, self.flag)
        return json_object(value, self.flag) if self.option.metavar.startswith("JSON") else value


def with_options(
    model: type[BaseModel], defaults: bool = True, shown_as: Literal["default", "initially"] = "default"
) -> Callable[[Command], Command]:
    """Add the options that a model declares to a verb; its function gets the typed ones as `given`.

    Parameters
    ----------
    model : type of BaseModel
    defaults : bool
        Pass the model's defaults for options that are not typed; otherwise the function does not get these options,
        and the defaults only appear in the help texts.
    shown_as : str
        How the help texts call a default: `initially` if an option that is not typed keeps its present value.
    """
    declared = list(_options(model, defaults, shown_as))

    def wrap(command: Command) -> Command:
        @functools.wraps(command)
        def run(**values: Any) -> Any:
            given: dict[str, Any] = {}
            for declaration in declared:
                value = values.pop(declaration.parameter.name)
                if value is not None and value is not False and value != []:
                    place = given if declaration.group is None else given.setdefault(declaration.group, {})
                    place[declaration.field] = declaration.read(value)
            return command(**values, given=given)

        added = [declaration.parameter for declaration in declared]
        set_parameters(run, command, without={"given"}, added=added, first=True)
        return run

    return wrap


def settings_of(model: type[_Settings], given: dict[str, Any]) -> _Settings:
    """Return the settings of a server from the given options.

    Raises
    ------
    InvalidError
        Names the first option that is missing or wrong.
    """
    try:
        return model(**given)
    except ValidationError as error:
        fault = error.errors()[0]
        name = "--" + str(fault["loc"][0]).replace("_", "-")
        said = field_fault(fault, skipped=1)
        if fault["type"] == "string_pattern_mismatch" and fault["loc"][0] == "replicas":
            said = f"{fault['input']!r} found, expected a number of at most four digits, or auto"
        raise InvalidError(f"{name}: {said}") from error


def _options(model: type[BaseModel], defaults: bool, shown_as: str) -> Iterator[_Declared]:
    """Yield the options of a model: those of its own fields before those of its parent."""
    own = [name for name in model.model_fields if name in model.__annotations__]
    for name in [*own, *(model_field for model_field in model.model_fields if model_field not in own)]:
        field = model.model_fields[name]
        for note in field.metadata:
            if isinstance(note, CliOption):
                yield _declared(name, None, field, note, defaults, shown_as)
            elif isinstance(note, CliGroup):
                record = next(arg for arg in get_args(field.annotation) if arg is not type(None))
                for inner, option in note.options.items():
                    yield _declared(inner, name, record.model_fields[inner], option, False, shown_as)


def _declared(
    name: str, group: str | None, field: FieldInfo, option: CliOption, defaults: bool, shown_as: str
) -> _Declared:
    kind = str if option.nullable or option.is_duration or option.word else _kind(field.annotation)
    default = field.default if defaults and field.default not in ([], None) else False if kind is bool else None
    help_text = option.help
    if group is None and (shown := _default_text(field.default, option)):
        # The form in which typer shows the defaults of other options.
        help_text += f" [{shown_as}: {shown}]"
    return _Declared(name, group, option, kind, default, help_text)


def _default_text(default: Any, option: CliOption) -> str:
    """Return a default as it is typed; an empty text if there is none to show."""
    if default is None and option.nullable:
        return "none"
    if option.is_duration:
        unit, size = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if default % size == 0)
        return f"{default / size:g}{unit}"
    if isinstance(default, bool) or not isinstance(default, str | int | float):
        return ""
    return default if isinstance(default, str) else f"{default:g}"


def _kind(annotation: Any) -> type:
    """Return the type that typer uses for an annotation."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return _kind(next(arg for arg in get_args(annotation) if arg is not type(None)))
    plain: tuple[type, ...] = (bool, int, float)
    return next((kind for kind in plain if annotation is kind), list if origin in (list, tuple) else str)


def _number(text: str, flag: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise InvalidError(f"{flag}: '{text}', expected a number, or none") from None
