# SPDX-License-Identifier: Apache-2.0
"""The messages between the agents of machines and the proxy."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator

from serving_proxy.errors import InvalidError
from serving_proxy.records.machine_logs import LogAsk
from serving_proxy.records.message import NAME, Message

_NAME = re.compile(NAME)
_MOST_NUMBER = 2**63 - 1


def check_machine(name: str) -> str:
    """Return the name of a machine.

    Raises
    ------
    InvalidError
        It is no name: 1 to 128 letters, digits, `_`, `-` and `.`, beginning with a letter, a digit or `_`.
    """
    if not _NAME.fullmatch(name):
        raise InvalidError(f"machine '{name[:150]}': expected 1 to 128 letters, digits, '_', '-' and '.'")
    return name


class HostReport(Message):
    """One host of a machine.

    Attributes
    ----------
    alive, hung : bool
    actual : dict or None
        Its `actual.json`, with the paths that the proxy knows; None: as in the last report.
    stats : dict
        Its newest statistics, with those of mirrored traffic under `shadow`; empty: as in the last report.
    counted_at : float [s]
        When they were written, by the clock of the machine's file system.
    """

    alive: bool
    hung: bool = False
    actual: dict[str, Any] | None = None
    stats: dict[str, Any] = Field(default_factory=dict)
    counted_at: float = 0.0


class PlacedCores(Message):
    """The cores of a version on a machine.

    Attributes
    ----------
    cores : int
        Number of physical cores.
    core_list : str
        Which: ranges of indices into the machine's cores in the order of NUMA nodes and CPUs.
    """

    cores: int = Field(ge=0)
    core_list: str = ""


class AgentReport(Message):
    """The actual state of a machine.

    Attributes
    ----------
    agent : str
        Identifies the process of the agent.
    version : str
        Release of the agent.
    address : str
        Address at which clients reach the hosts of the machine.
    cpus : int
        CPUs that the agent and its hosts may use.
    memory_bytes : int
    term, generation : int
        The state that the hosts were told last.
    highest_term, highest_generation : int
        The newest state that the agent has accepted; it refuses older ones.
    refused : str or None
        Why it refuses the state of the proxy.
    cores_fault : str
        Why versions do not have the cores of the placement; "": they have.
    fetching : dict of str to str
        `model/version`: how far the transfer of its files is.
    failed : dict of str to str
        `model/version`: why its files cannot be fetched, and the agent tries again; or why no host there can serve it.
    left_out : tuple of str
        Keys of `desired.json` that hosts there do not know.
    hosts : dict of str to HostReport
    features : tuple of str
        What the agent can do besides what agents of the first release do.
    """

    agent: str = Field(min_length=1, max_length=64)
    version: str = Field(max_length=64)
    address: str = Field(default="", max_length=255)
    cpus: int = Field(default=0, ge=0)
    memory_bytes: int = Field(default=0, ge=0)
    term: int = Field(default=0, ge=0, le=_MOST_NUMBER)
    generation: int = Field(default=0, ge=0, le=_MOST_NUMBER)
    highest_term: int = Field(default=0, ge=0, le=_MOST_NUMBER)
    highest_generation: int = Field(default=0, ge=0, le=_MOST_NUMBER)
    refused: str | None = None
    cores_fault: str = Field(default="", max_length=1000)
    fetching: dict[str, str] = Field(default_factory=dict)
    failed: dict[str, str] = Field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    hosts: dict[str, HostReport] = Field(default_factory=dict, max_length=256)
    features: tuple[str, ...] = Field(default=(), max_length=100)

    @field_validator("hosts")
    @classmethod
    def _check_names(cls, hosts: dict[str, HostReport]) -> dict[str, HostReport]:
        for name in hosts:
            if not _NAME.fullmatch(name):
                raise ValueError(f"host '{name[:150]}': expected 1 to 128 letters, digits, '_', '-' and '.'")
        return hosts


class ReportAnswer(Message):
    """The proxy's answer to a report.

    Attributes
    ----------
    term, generation : int
        The newest state.
    report_in : float [s]
        When the next report is due, if nothing changes before.
    stats_in : float [s]
        When statistics are due again; they are much larger than the rest.
    unknown : tuple of str
        Hosts whose `actual.json` the proxy does not have; the agent sends it at once.
    asked : tuple of LogAsk
        Questions that the agent has not answered yet; those that are no longer there need no answer.
    """

    term: int
    generation: int
    report_in: float
    stats_in: float = 1.0
    unknown: tuple[str, ...] = ()
    asked: tuple[LogAsk, ...] = ()


class MachineState(Message):
    """What a machine is to serve.

    Attributes
    ----------
    term : int
        Grows whenever another proxy begins to lead.
    generation : int
        Grows with every change.
    desired : dict
        `desired.json` without its generation, with the paths that the proxy knows.
    cores : dict of str to PlacedCores
        By `model/version`; empty: cores are not divided.
    """

    term: int = Field(ge=0, le=_MOST_NUMBER)
    generation: int = Field(ge=0, le=_MOST_NUMBER)
    desired: dict[str, Any]
    cores: dict[str, PlacedCores] = Field(default_factory=dict)

    @field_validator("desired")
    @classmethod
    def _check_desired(cls, desired: dict[str, Any]) -> dict[str, Any]:
        models = desired.get("models")
        if not isinstance(models, dict):
            raise ValueError("no models, expected an object of models")
        for name, model in models.items():
            versions = model.get("versions") if isinstance(model, dict) else None
            if not isinstance(versions, dict) or "baseline" not in model:
                raise ValueError(f"models.{name}: expected a baseline and versions")
            for number, entry in versions.items():
                if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
                    raise ValueError(f"models.{name}.versions.{number}: expected a path")
        return desired

    @property
    def order(self) -> tuple[int, int]:
        """Return what states are compared by."""
        return self.term, self.generation
