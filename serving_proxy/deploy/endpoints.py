# SPDX-License-Identifier: Apache-2.0
"""The addresses at which clients reach a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Model
from serving_proxy.records.placement import Placement
from serving_proxy.records.view import View

_ALL = {"0.0.0.0", "[::]", "::", "*", ""}


class EndpointView(View):
    """A host that serves a model: its addresses, and the versions that are ready there.

    `addresses` are by protocol, such as `grpc` and `rest`. `away_for` is null if the machine's agent reports; otherwise
    it is the number of seconds since the agent's last report, and the other fields are from that report.
    """

    host: str
    machine: str
    addresses: dict[str, str]
    versions: list[int]
    away_for: float | None


class EndpointsView(View):
    """The hosts to which requests for a model may be sent."""

    model: str
    generation: int
    endpoints: list[EndpointView]


def endpoints(
    model: Model,
    hosts: Sequence[HostSeen],
    placement: Placement | None,
    moving: bool,
    away: Mapping[str, float] | None = None,
    drained: Collection[str] = (),
    since: int | None = 0,
) -> list[EndpointView]:
    """Return the hosts on which the baseline of a model is ready, so that they can serve any request for it.

    Hosts serve without their agent, so those of a machine that is away are among them as it reported them last, at the
    end of the list.

    Parameters
    ----------
    model : Model
    hosts : sequence of HostSeen
    placement : Placement or None
    moving : bool
        New machines do not have the model yet, so that those that it leaves are needed.
    away : mapping of str to float [s], optional
        For how long machines that are away have not reported; None: hosts do not serve without their agent.
    drained : collection of str
        As in `HostSettings`.
    since : int or None
        Generation in which the model got its baseline (`Control.baseline_since`); None: it is not published yet.
    """
    found: list[EndpointView] = []
    if model.baseline is None:
        return found
    wanted = None if placement is None else placement.wanted(model, model.baseline)
    target = None if placement is None else placement.target(model, model.baseline)
    machines = wanted if moving else target
    for host in hosts:
        away_for = None if away is None else away.get(host.machine)
        # `away` is newer than `hosts`: an agent may have reported again since.
        may_serve = host.alive or (host.away and away is not None)
        if not may_serve or host.state != "ready":
            continue
        if machines is not None and host.machine not in {*machines, ""}:
            continue
        if away_for is not None or not host.alive:
            # A drained host ends without its agent, too.
            if {host.name, f"{host.machine}/*"} & {*drained}:
                continue
            # It has not heard of the baseline: although that is ready there, it answers with the one before.
            if since is None or host.generation < since:
                continue
        if not host.endpoints:  # it has just loaded its models, and listens next
            continue
        versions = host.models.get(model.name, {})
        ready = sorted(number for number, seen in versions.items() if seen.state == "ready")
        if model.baseline in ready:
            addresses = {name: _reachable(place, host.address) for name, place in host.endpoints.items()}
            found.append(
                EndpointView(
                    host=host.name, machine=host.machine, addresses=addresses, versions=ready, away_for=away_for
                )
            )
    return sorted(found, key=lambda endpoint: endpoint.away_for is not None)


def _reachable(place: str, address: str) -> str:
    """Return an address at which a host listens, with that of its machine if it listens at all addresses."""
    listens, colon, port = place.rpartition(":")
    if not colon or not port.isdecimal() or not address or listens not in _ALL:
        return place
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
