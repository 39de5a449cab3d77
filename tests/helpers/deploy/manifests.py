# SPDX-License-Identifier: Apache-2.0
"""Read manifests of Kubernetes, and check command lines in them with the programs that get them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
import yaml

from helpers.system.programs import ROOT
from serving_proxy.agent.settings import AgentSettings
from serving_proxy.cli.app import app, load_commands
from serving_proxy.host.options import check_options
from serving_proxy.serve.settings import ServeSettings

Json = dict[str, Any]
CHART = ROOT / "deploy" / "helm" / "recprocessor"
PLAIN = ROOT / "deploy" / "kubernetes" / "recprocessor.yaml"
RUNTIME = ROOT / "deploy" / "kserve" / "servingruntime.yaml"


def read_manifests(text: str) -> list[Json]:
    """Return the objects of a text with several documents."""
    return [found for found in yaml.safe_load_all(text) if found is not None]


def plain() -> list[Json]:
    """Return the committed manifests."""
    return read_manifests(PLAIN.read_text(encoding="utf-8"))


def one(manifests: list[Json], kind: str, name: str) -> Json:
    """Return the object of a kind and a name."""
    (found,) = (each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def pod_specs(manifests: list[Json]) -> list[Json]:
    """Return the specification of every pod."""
    sets = [each["spec"]["template"]["spec"] for each in manifests if each["kind"] == "StatefulSet"]
    return sets + [each["spec"] for each in manifests if each["kind"] == "ServingRuntime"]


def containers(manifests: list[Json]) -> list[Json]:
    """Return every container."""
    return [found for spec in pod_specs(manifests) for found in (*spec.get("initContainers", []), *spec["containers"])]


def container(manifests: list[Json], name: str) -> Json:
    """Return the container of a name."""
    (found,) = (each for each in containers(manifests) if each["name"] == name)
    return found


def parse_verb(verb: str, arguments: list[str]) -> Json:
    """Parse arguments as the command line does, and return the options that were given.

    Raises
    ------
    Exception
        An option does not exist, or lacks its value.
    """
    load_commands()
    group: Any = typer.main.get_command(app)
    with group.commands[verb].make_context(verb, list(arguments)) as context:
        return {
            name: value
            for name, value in context.params.items()
            if context.get_parameter_source(name).name == "COMMANDLINE"
        }


def check_command(command: list[str], arguments: list[str]) -> None:
    """Check the command line of a container as its program does.

    Raises
    ------
    Exception
        The program does not accept it, or is not one of recprocessor's.
    """
    match command:
        case ["serving-proxy", "serve"]:
            ServeSettings(**parse_verb("serve", arguments))
        case ["serving-proxy", "agent"]:
            AgentSettings(**parse_verb("agent", arguments))
        case ["recprocessor-host"] | ["python", "-m", "serving_proxy.host"]:
            at = arguments.index("--state-dir")
            fault = check_options(arguments[:at] + arguments[at + 2 :])
            if fault is not None:
                raise ValueError(fault)
        case _:
            raise ValueError(f"{command}: expected a program of recprocessor")


def move(arguments: list[str], places: dict[str, Path]) -> list[str]:
    """Return arguments whose paths are in other folders, those that `places` names for folders of the container."""
    moved = []
    for argument in arguments:
        scheme, _, path = argument.rpartition("file://")
        start = next((start for start in places if path.startswith(f"{start}/") or path == start), None)
        mark = "file://" if argument != path else ""
        moved.append(argument if start is None else f"{scheme}{mark}{places[start]}{path.removeprefix(start)}")
    return moved
