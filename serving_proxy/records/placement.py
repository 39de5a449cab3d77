# SPDX-License-Identifier: Apache-2.0
"""The placement in force: which machines have which models, and from which machines models move away."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from serving_proxy.records.models import Model, Record, VersionNumber


class Replica(Record):
    """A model on a machine.

    Attributes
    ----------
    version : int or None
        None: every version that the placement does not name.
    cores : int
        Number of physical cores that it may use; 0: all.
    core_list : str
        Which of the machine's cores, as ranges of indices; an agent that has other cores chooses as many of them.
    """

    machine: str
    version: VersionNumber | None = None
    cores: Annotated[int, Field(ge=0, le=65536)] = 0
    core_list: str = ""


class ModelPlacement(Record):
    """The machines of a model.

    Attributes
    ----------
    replicas : tuple of Replica
    leaving : dict of int to tuple of str
        By version, the machines that keep it until the machines of `replicas` have it.
    """

    replicas: tuple[Replica, ...]
    leaving: dict[int, tuple[str, ...]] = Field(default_factory=dict)

    @property
    def machines(self) -> frozenset[str]:
        """Return the machines of the model, without those that it leaves."""
        return frozenset(replica.machine for replica in self.replicas)

    @property
    def has_versions_apart(self) -> bool:
        """Return whether its entries put versions onto different machines."""
        machines: dict[int | None, set[str]] = {}
        for replica in self.replicas:
            machines.setdefault(replica.version, set()).add(replica.machine)
        return len({frozenset(found) for found in machines.values()}) > 1

    @property
    def left(self) -> frozenset[str]:
        """Return the machines that some version leaves."""
        return frozenset(machine for machines in self.leaving.values() for machine in machines)

    def target(self, model: Model, number: int) -> frozenset[str]:
        """Return the machines that are to have a version in the end.

        Hosts divide the requests of a model among its versions, so a version that may get requests which do not name it
        by its number is on all machines of the model.
        """
        if has_role(model, number):
            return self.machines
        named = {replica.machine for replica in self.replicas if replica.version == number}
        others = {replica.machine for replica in self.replicas if replica.version is None}
        return frozenset(named or others) or self.machines

    def wanted(self, model: Model, number: int) -> frozenset[str]:
        """Return the machines that are to have a version now."""
        kept = set(self.leaving.get(number, ()))
        if has_role(model, number):
            # A version that was deployed during a move.
            kept |= self.left - self.machines
        return self.target(model, number) | kept


class Placement(Record):
    """The machines of all models that have an entry; others are on all machines.

    Attributes
    ----------
    handover_s : float [s]
        How long a machine keeps a model that has moved: the time in which clients learn its new machines.
    applied : float [s since 1970]
    """

    models: dict[str, ModelPlacement] = Field(default_factory=dict)
    handover_s: Annotated[float, Field(ge=0, le=86400)] = 30.0
    applied: float = 0.0

    @property
    def machines(self) -> frozenset[str]:
        """Return the machines that have an entry."""
        return frozenset(machine for placed in self.models.values() for machine in placed.machines)

    def target(self, model: Model, number: int) -> frozenset[str] | None:
        """Return the machines that are to have a version in the end; None: all."""
        placed = self.models.get(model.name)
        return None if placed is None else placed.target(model, number)

    def wanted(self, model: Model, number: int) -> frozenset[str] | None:
        """Return the machines that are to have a version now; None: all."""
        placed = self.models.get(model.name)
        return None if placed is None else placed.wanted(model, number)


def has_role(model: Model, number: int) -> bool:
    """Return whether a version may get requests that do not name it by its number, now or after a rollback."""
    named = {model.baseline, model.candidate, model.last_good, *model.labels.values(), *model.published.values()}
    shared = {*model.weights, *(ramp.version for ramp in model.ramps)}
    version = model.versions.get(number)
    return number in named | shared or (version is not None and version.shadow > 0)
