# SPDX-License-Identifier: Apache-2.0
"""Routes of the agents of machines: the next desired state, reports, warm-up files, and answers about request logs."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from serving_proxy.api.errors import RESPONSES
from serving_proxy.artifacts.warmups import TOTAL, first_there, hash_of_name, read_part
from serving_proxy.control.plane import Plane
from serving_proxy.errors import NotFoundError, UnavailableError
from serving_proxy.fleet.loop import Fleet
from serving_proxy.records.agents import AgentReport, ReportAnswer, check_machine
from serving_proxy.records.machine_logs import PART_BYTES, LogAnswer, Received
from serving_proxy.records.models import Model

_LONGEST_WAIT_S = 60.0
_MOST_NUMBER = 2**63 - 1

MachineName = Annotated[str, Path(min_length=1, max_length=200, description="Name of the machine.")]
Order = Annotated[int | None, Query(ge=0, le=_MOST_NUMBER)]
Question = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
Offset = Annotated[int, Query(ge=0, le=_MOST_NUMBER)]
_BYTES: dict[str, Any] = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


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
        return answer.model_copy(update={"asked": fleet.logs.questions_for(machine)})

    @router.post("/{machine}/logs/{question}", status_code=204)
    async def log_answer(machine: MachineName, question: Question, told: LogAnswer) -> Response:
        """Accept the answer to a question about a request log."""
        check_machine(machine)
        await fleet.logs.answer(machine, question, told)
        return Response(status_code=204)

    @router.put("/{machine}/logs/{question}/bytes", openapi_extra={"requestBody": _BYTES})
    async def log_bytes(machine: MachineName, question: Question, start: Offset, request: Request) -> Received:
        """Accept a part of the recorded requests that an answer has announced."""
        check_machine(machine)
        fleet.logs.check(machine, question)
        return Received(received=await fleet.logs.receive(machine, question, start, await request.body()))

    @router.get("/{machine}/warmups/{name}", response_class=Response, responses={200: _BYTES})
    async def warmup(machine: MachineName, name: Annotated[str, Path(max_length=64)], start: Offset = 0) -> Response:
        """Return a part of a warm-up file that a version uses, and the size of the file in `X-Total-Bytes`."""
        check_machine(machine)
        check_leading()
        named = _warmups_of(plane.control.models.values(), name)
        file = await asyncio.to_thread(first_there, named, plane.control.options.warmups)
        data, size = await asyncio.to_thread(read_part, file, start, PART_BYTES)
        return Response(data, media_type="application/octet-stream", headers={TOTAL: str(size)})

    return router


def _warmups_of(models: Iterable[Model], name: str) -> list[pathlib.Path]:
    """Return the warm-up files of deployed versions by their name; agents can read no other files of this machine."""
    found = [
        pathlib.Path(file)
        for model in models
        for version in model.versions.values()
        if version.desired and (file := version.settings.warmup_file) is not None and pathlib.Path(file).name == name
    ]
    if not found or hash_of_name(name) is None:
        raise NotFoundError(f"warm-up file {name}: no version uses it, expected one of the desired state")
    return found
