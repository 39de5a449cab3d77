# SPDX-License-Identifier: Apache-2.0
"""Drain hosts of machines: they finish their requests, end, and are not ready again before the drain is over.

Hosts read it from their `desired.json`, so it reaches every machine that its agent reaches, whatever started the hosts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from serving_proxy.deploy.control import Control
from serving_proxy.errors import NotFoundError, PreconditionError, ProxyError
from serving_proxy.fleet.machines import Machine, Machines
from serving_proxy.records.features import features_of, named

_SETTING = "drained"
_FEATURE = "host:drained"


class Drains:
    """Which hosts are drained; another proxy continues with them.

    Parameters
    ----------
    control : Control
    machines : Machines
    """

    def __init__(self, control: Control, machines: Machines) -> None:
        self._control = control
        self._machines = machines
        stored = control.repository.setting(_SETTING)
        if isinstance(stored, list) and stored:
            control.drain(map(str, stored))

    def drain(self, name: str | None, drained: bool) -> None:
        """Drain a machine (`MACHINE`), a host (`MACHINE/HOST`), or all machines (None); or end that.

        Raises
        ------
        NotFoundError
            No machine or host has this name.
        PreconditionError
            A host is of a release that cannot be drained.
        ExhaustedError, UnavailableError
            It cannot be stored: nothing was changed.
        """
        before = set(self._control.host_settings.drained)
        if drained:
            after = before | self._named(name, checked=True)
        elif name is None:
            after = set()
        else:
            # What is drained can be released also if its machine is no longer known.
            gone = _of(name, before) or self._named(name, checked=False)
            # The end of a machine's drain is also that of its hosts.
            after = before - gone - {host for host in before if f"{host.partition('/')[0]}/*" in gone}
            if after == before and (machine := name.partition("/")[0]) != name and f"{machine}/*" in before:
                raise PreconditionError(f"host '{name}': its machine is drained, expected drain --off {machine}")
        if after == before:
            return
        self._control.repository.set_setting(_SETTING, sorted(after))
        self._control.drain(after)
        for host in sorted(after ^ before):
            self._control.note("drain", f"{host.removesuffix('/*')}: {'drains' if drained else 'may be ready again'}")

    def forget(self, machine: str) -> None:
        """Release a machine that has ended for good: another one may get its name."""
        before = set(self._control.host_settings.drained)
        after = before - _of(machine, before)
        if after == before:
            return
        self._control.drain(after)
        # If it cannot be stored now, the next change of a drain stores it.
        with contextlib.suppress(ProxyError):
            self._control.repository.set_setting(_SETTING, sorted(after))

    def _named(self, name: str | None, checked: bool) -> set[str]:
        """Return what a name means; `checked`: raise an error if a host cannot be drained."""
        machines = {machine.name: machine for machine in self._machines.all()}
        if name is None:
            for known in machines.values():
                _check(known, known.hosts)
            return {f"{machine}/*" for machine in machines}
        machine_name, _, host = name.partition("/")
        machine = machines.get(machine_name)
        if machine is None:
            raise NotFoundError(
                f"machine '{machine_name[:80]}': unknown, expected one of {', '.join(machines) or 'none'}"
            )
        if not host:
            if checked:
                _check(machine, machine.hosts)
            return {f"{machine_name}/*"}
        if host not in machine.hosts:
            others = ", ".join(f"{machine_name}/{other}" for other in sorted(machine.hosts)) or "none"
            raise NotFoundError(f"host '{name[:160]}': unknown, expected one of {others}")
        if checked:
            _check(machine, [host])
        return {name}


def _of(name: str, drained: Iterable[str]) -> set[str]:
    """Return what is drained of a machine, or a host if it is drained by its own name."""
    return {host for host in drained if name in {host, host.partition("/")[0]}}


def _check(machine: Machine, hosts: Iterable[str]) -> None:
    for seen in map(machine.hosts.__getitem__, hosts):
        if seen.alive and _FEATURE not in features_of(seen):
            raise PreconditionError(f"{named(seen)}: lacks {_FEATURE}, expected what started it to end it with SIGTERM")
