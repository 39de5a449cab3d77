# SPDX-License-Identifier: Apache-2.0
"""`takeover`: how long it takes until a standby leads after the leader was killed, and its changes reach machines.

`takeover_bucket` is the same with proxies that share a bucket instead of a folder.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load_tests._report import Target
from load_tests.fleet.delivery import run_agents, weight_of
from load_tests.fleet.s3 import BUCKET, s3_server
from load_tests.fleet.setup import FleetProxy, Setup, make_certificates, wait_until, write_model

__all__ = ["judge", "measure", "measure_bucket"]

_MACHINES = 10


def measure(setup: Setup) -> dict[str, Any]:
    """Kill the leader of proxies that share a folder several times."""
    with tempfile.TemporaryDirectory() as name:
        return _measure(setup, Path(name), ("--shared-store", f"file://{name}/shared", "--new-store"))


def measure_bucket(setup: Setup) -> dict[str, Any]:
    """Kill the leader of proxies that share a bucket several times."""
    with tempfile.TemporaryDirectory() as name, s3_server(Path(name)) as server:
        shared = ("--shared-store", f"s3://{BUCKET}/proxies", "--model-store", f"s3://{BUCKET}/store")
        return {"server": server, **_measure(setup, Path(name), shared)}


def _measure(setup: Setup, folder: Path, shared: tuple[str, ...]) -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        make_certificates(folder)
        leader, standby = (stack.enter_context(FleetProxy(folder, name, shared)) for name in ("a", "b"))
        wait_until(lambda: leader.leads or standby.leads)
        if not leader.leads:
            leader, standby = standby, leader
        for version in (1, 2):
            leader.client.deploy("model_0", write_model(folder / "models" / str(version)))
        machines = [folder / f"machine-{number}" for number in range(_MACHINES)]
        ended = spawn.Event()
        urls = (leader.url, standby.url)
        agents = spawn.Process(target=run_agents, args=(machines, urls, leader.token_file, leader.ca_file, ended))
        agents.start()
        rounds = []
        try:
            wait_until(lambda: all(weight_of(machine) is not None for machine in machines))
            for number in range(setup.rounds):
                rounds.append(_take_over(leader, standby, machines, 1.0 + number))
                leader.__enter__()
                leader, standby = standby, leader
                # The new standby has had the time to read the log.
                time.sleep(2.0)
        finally:
            ended.set()
            agents.join(30)
    lead, applied = (sorted(found) for found in zip(*rounds, strict=True))
    return {"rounds": setup.rounds, "lead_s": lead[-1], "applied_s": applied[-1], "all_lead_s": [*lead]}


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [Target("takeover by the standby, slowest [s]", case["lead_s"], 10.0, at_least=False)]


def _take_over(leader: FleetProxy, standby: FleetProxy, machines: list[Path], percent: float) -> tuple[float, float]:
    """Kill the leader, and return how long it took until the other leads, and until a change has reached all [s]."""
    begun = time.monotonic()
    leader.kill()
    wait_until(lambda: standby.leads)
    leads = time.monotonic() - begun
    standby.client.traffic("model_0", {2: percent})
    wait_until(lambda: all(weight_of(machine) == round(100 * percent) for machine in machines))
    return leads, time.monotonic() - begun
