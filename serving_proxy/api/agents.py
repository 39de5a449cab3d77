# SPDX-License-Identifier: Apache-2.0
"""Routes of the agents of machines: wait for the next desired state, and report the actual one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from serving_proxy.api.errors import RESPONSES
from serving_proxy.control.plane import Plane
from serving_proxy.errors import UnavailableError
from serving_proxy.fleet.loop import Fleet
from serving_proxy.records.agents import AgentReport, ReportAnswer, check_machine

_LONGEST_WAIT_S = 60.0
_MOST_NUMBER = 2**63 - 1

MachineName = Annotated[str, Path(min_length=1, max_length=200, description="Name of the machine.")]
Order = Annotated[int | None, Query(ge=0, le=_MOST_NUMBER)]


def agent_routes(plane: Plane, fleet: Fleet) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1/agents", responses=RESPONSES, tags=["agents"])

    def check_leading() -> None:
        if not fleet.states.leads:
            raise UnavailableError("this proxy no longer leads, expected the one that does")

    @router.get("/{machine}/desired", responses={204: {"description": "There is no other state"}})
    async def desired(
        machine: MachineName,
        term: Order = None,
        generation: Order = None,
        wait: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_S)] = 0.0,
    ) -> Response:
        """Return the state that a machine is to follow, once it is not the one that the machine has."""
        check_machine(machine)
        check_leading()
        after = None if term is None or generation is None else (term, generation)
        text = await fleet.states.newer(machine, after, wait, plane.closing)
        check_leading()
        if text is None:
            return Response(status_code=204)
        return Response(text, media_type="application/json")

    @router.post("/{machine}/report")
    async def report(machine: MachineName, told: AgentReport) -> ReportAnswer:
        """Accept the actual state of a machine."""
        check_machine(machine)
        check_leading()
        answer = fleet.machines.accept(machine, told, fleet.states.order)
        fleet.remember()
        return answer

    return router
