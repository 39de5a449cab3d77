# SPDX-License-Identifier: Apache-2.0
"""The process of `serving-proxy agent`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path

from serving_proxy.agent.agent import Agent, run_until
from serving_proxy.agent.artifacts import StoredArtifacts
from serving_proxy.agent.link import Link
from serving_proxy.agent.logs import LogAnswers
from serving_proxy.agent.reports import Reporter
from serving_proxy.agent.settings import AgentSettings
from serving_proxy.agent.timelines import StoredTimelines
from serving_proxy.artifacts.machine_store import MachineStore
from serving_proxy.artifacts.timelines import FOLDER
from serving_proxy.errors import ProxyError
from serving_proxy.records.model_cache import cache_folder, cache_limit
from serving_proxy.store import StateLock
from serving_proxy.system.files import private_folder
from serving_proxy.system.listening import ENDING

log = logging.getLogger("serving_proxy.agent")

_RETAIN_S = 30.0


def run_agent(settings: AgentSettings) -> None:
    """Run an agent until it is told to end.

    Raises
    ------
    ProxyError
        It cannot start: a setting is invalid, or the state directory is in use.
    """
    # Requests, logs and models are private to this user.
    os.umask(0o077)
    asyncio.run(_run_until_signaled(settings))


async def _run_until_signaled(settings: AgentSettings) -> None:
    ended = asyncio.Event()
    for number in ENDING:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await run(settings, ended)


async def run(settings: AgentSettings, ended: asyncio.Event) -> None:
    """Run an agent until an event is set; raise the errors of `run_agent`."""
    settings.check()
    state_dir = private_folder(settings.state_dir)
    # A proxy would write the same files.
    with StateLock(state_dir):
        link = Link(settings)
        try:
            artifacts = StoredArtifacts(partial(_content_store, settings, state_dir))
            timelines = StoredTimelines(cache_folder(settings.model_cache, state_dir) / FOLDER)
            agent = Agent(state_dir, link, artifacts, settings.retry_timeout, timelines)
            logs = LogAnswers(state_dir, link)
            reporter = Reporter(state_dir, link, agent, settings.reachable_address, logs)
            log.info("ready", extra={"machine": settings.name, "state_dir": str(state_dir)})
            notify("READY=1")
            loops = (agent.apply(), agent.follow(), reporter.run(), _retain(agent, artifacts, logs), timelines.run())
            await run_until(ended, *(asyncio.create_task(loop) for loop in loops))
        finally:
            notify("STOPPING=1")
            await link.close()


def _content_store(settings: AgentSettings, state_dir: Path) -> MachineStore:
    folder = cache_folder(settings.model_cache, state_dir)
    return MachineStore(folder, state_dir, cache_limit(settings.model_cache_mb))


async def _retain(agent: Agent, artifacts: StoredArtifacts, logs: LogAnswers) -> None:
    """Say from time to time which copies are needed, and remove other files, until the task is cancelled."""
    while True:
        await asyncio.sleep(_RETAIN_S)
        try:
            await agent.remove_unused()
            if agent.memory.state is not None:
                await asyncio.to_thread(logs.remove_excess, agent.memory.state.desired)
            await artifacts.retain(list(agent.memory.paths.values()))
        except (ProxyError, OSError) as error:
            log.warning("%s", error)


def notify(message: str) -> None:
    """Tell systemd about this service, if it asked for that (`NOTIFY_SOCKET`)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)
