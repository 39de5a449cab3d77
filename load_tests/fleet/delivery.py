# SPDX-License-Identifier: Apache-2.0
"""`delivery`: how long a change takes from the operator's request to the `desired.json` of each machine.

The agents are those of `serving-proxy agent`, over TLS; four processes run all of them. Each reports a host with the
statistics of all versions once a second, as in production.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import multiprocessing
import os
import tempfile
import time
from contextlib import ExitStack
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

from load_tests._report import Target
from load_tests.fleet.setup import FleetProxy, Setup, make_certificates, wait_until, write_model

__all__ = ["judge", "measure", "run_agents", "weight_of"]

_PROCESSES = 4
_BUCKETS = 91
_PAUSE_S = 0.2


def measure(setup: Setup) -> dict[str, Any]:
    """Change the traffic of a model, and wait until all machines have the change."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        make_certificates(folder)
        machines = [folder / f"machine-{number}" for number in range(setup.agents)]
        for machine in machines:
            stack.callback(_write_host(machine, setup.models).close)
        proxy = stack.enter_context(FleetProxy(folder))
        for model in range(setup.models):
            for version in (1, 2):
                proxy.client.deploy(f"model_{model}", write_model(folder / "models" / str(model) / str(version)))
        ended = spawn.Event()
        shares = [machines[first::_PROCESSES] for first in range(_PROCESSES)]
        files = ((proxy.url,), proxy.token_file, proxy.ca_file)
        processes = [spawn.Process(target=run_agents, args=(share, *files, ended)) for share in shares if share]
        for process in processes:
            process.start()
        try:
            wait_until(lambda: all(weight_of(machine) is not None for machine in machines))
            wait_until(lambda: len(proxy.client.status()["hosts"]) == setup.agents)
            delays = [_change(proxy, machines, number) for number in range(setup.changes)]
        finally:
            ended.set()
            for process in processes:
                process.join(30)
        size = len((machines[0] / "desired.json").read_bytes())
    found = np.array(delays)
    return {
        "agents": setup.agents,
        "changes": setup.changes,
        "state_bytes": size,
        "p50_ms": float(np.percentile(found, 50) * 1e3),
        "p99_ms": float(np.percentile(found, 99) * 1e3),
        "slowest_ms": float(found.max() * 1e3),
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [Target("delivery of a state to 100 agents, p99 [ms]", case["p99_ms"], 1000.0, at_least=False)]


def _change(proxy: FleetProxy, machines: list[Path], number: int) -> list[float]:
    """Change a share, and return how long each machine took to have it [s]."""
    percent = 1.0 + number % 90
    begun = time.time()
    proxy.client.traffic("model_0", {2: percent})
    wait_until(lambda: all(weight_of(machine) == round(100 * percent) for machine in machines))
    found = [(machine / "desired.json").stat().st_mtime - begun for machine in machines]
    time.sleep(_PAUSE_S)
    return found


def weight_of(machine: Path, name: str = "model_0") -> int | None:
    """Return the share of a model's variants that the hosts of a machine are told; None: no state yet."""
    try:
        model = json.loads((machine / "desired.json").read_bytes())["models"][name]
    except (OSError, KeyError):
        return None
    return sum(int(arm["weight"]) for arm in model["routing"]["arms"])


def run_agents(machines: list[Path], urls: tuple[str, ...], token_file: Path, ca_file: Path, ended: Event) -> None:
    """Run the agents of machines until an event is set."""
    from serving_proxy.agent.process import run
    from serving_proxy.agent.settings import AgentSettings

    async def main() -> None:
        stop = asyncio.Event()
        made = [
            AgentSettings(server=urls, state_dir=machine, machine=machine.name, token_file=token_file, ca_file=ca_file)
            for machine in machines
        ]
        agents = [asyncio.create_task(run(settings, stop)) for settings in made]
        waiting = asyncio.create_task(asyncio.to_thread(ended.wait))
        await asyncio.wait([waiting, *agents], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        ended.set()
        await asyncio.gather(*agents)

    asyncio.run(main())


def _write_host(machine: Path, models: int) -> Any:
    """Write the files of a host that has all versions, and return its lock; this process acts as the host."""
    folder = machine / "hosts" / "host-0"
    folder.mkdir(parents=True)
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    buckets = [[10.0 * 2 ** (step / 4), step * 100] for step in range(_BUCKETS)]
    version = {
        "outcomes": {"OK": 9000},
        "duration_us": {"count": 9000, "buckets": buckets},
        "queue_us": {"count": 9000, "mean": 10.0},
        "run_us": {"count": 9000, "mean": 900.0},
        "in_flight": 0,
    }
    names = [f"model_{model}" for model in range(models)]
    ready = {"state": "ready", "error": None, "in_flight": 0, "cpuset": "0", "precision": "fp32"}
    actual = {
        "schema": 1,
        "host": "host-0",
        "pid": os.getpid(),
        "state": "ready",
        "generation": 1,
        "models": {name: {"versions": {"1": ready, "2": ready}} for name in names},
    }
    stats = {"schema": 1, "host": "host-0", "models": {name: {"versions": {"1": version}} for name in names}}
    (folder / "actual.json").write_text(json.dumps(actual))
    (folder / "stats.json").write_text(json.dumps(stats))
    return lock
