# SPDX-License-Identifier: Apache-2.0
"""`fleet`: two proxies that share a store, and two machines, whose programs are replaced one by one."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

from load_tests._releases import TODAY, Release
from load_tests.fleet.delivery import weight_of
from load_tests.fleet.machine import FleetMachine
from load_tests.fleet.setup import FleetProxy, make_certificates, wait_until
from load_tests.upgrade.clients import MODEL, Clients, Step

__all__ = ["begin_options", "upgrade_fleet"]

_READY_S = 120.0


def upgrade_fleet(folder: Path, models: Path, earlier: Release, seconds: float) -> list[Step]:
    """Replace every program by that of today, then go back, and return what clients saw.

    Parameters
    ----------
    folder : Path
        Empty folder for all files.
    models : Path
        Contains the versions as folders `1`, `2` …
    earlier : Release
    seconds : float [s]
        How long clients go on after each step.
    """
    make_certificates(folder)
    stores = ("--shared-store", f"file://{folder}/shared", *begin_options(earlier))
    stores += ("--model-store", f"file://{folder}/store")
    proxies = [FleetProxy(folder, name, stores, release=earlier) for name in ("proxy-a", "proxy-b")]
    with ExitStack() as stack:
        for proxy in proxies:
            stack.enter_context(proxy)
        fleet = _Fleet(proxies, models)
        fleet.deploy()
        for name in ("machine-0", "machine-1"):
            machine = FleetMachine(folder, name, proxies[0], others=proxies[1:], release=earlier)
            stack.callback(machine.end, signal.SIGKILL)
            machine.start()
            fleet.machines.append(machine)
        fleet.deploy()
        grpc, rest = ([getattr(machine, kind) for machine in fleet.machines] for kind in ("address", "rest_address"))
        clients = stack.enter_context(Clients(grpc, rest, seconds))
        clients.note(f"all programs are of {earlier.name}")
        for release in (TODAY, earlier):
            _replace_all(fleet, release, clients)
        return clients.steps


def begin_options(release: Release) -> tuple[str, ...]:
    """Return the options with which proxies of a release begin a store in an empty folder; older ones need none."""
    options = release.root / "serving_proxy" / "serve" / "options.py"
    return ("--new-store",) if "new_store:" in options.read_text(encoding="utf-8") else ()


class _Fleet:
    """The programs, and how each is replaced."""

    def __init__(self, proxies: list[FleetProxy], models: Path) -> None:
        self.proxies = proxies
        self.machines: list[FleetMachine] = []
        self._models = models
        self._versions = 0

    @property
    def leader(self) -> FleetProxy:
        """Return the proxy that leads, as soon as one does."""
        found: FleetProxy = wait_until(lambda: next((proxy for proxy in self.proxies if proxy.leads), None))
        return found

    def deploy(self) -> None:
        """Promote the version that was deployed last, and deploy the next one with a share."""
        if self._versions > 1:
            self.leader.client.promote(MODEL, self._versions)
        self._versions += 1
        path = self._models / str(self._versions)
        if self._versions == 1:
            # Hosts of today load what the earlier release has optimized. No host is there yet.
            self.leader.client.deploy(MODEL, path, optimize=True)
        else:
            self.leader.client.deploy(MODEL, path, traffic=10.0, wait=True, timeout=_READY_S)

    def check(self) -> None:
        """Change the share of the newest version, and wait until it has reached all machines."""
        before = weight_of(self.machines[0].state_dir, MODEL)
        weight = 2000 if before == 1000 else 1000
        self.leader.client.traffic(MODEL, {self._versions: weight / 100})
        wait_until(lambda: all(weight_of(machine.state_dir, MODEL) == weight for machine in self.machines))
        wait_until(lambda: all(found["state"] == "current" for found in self.leader.client.status()["machines"]))

    def replace_proxy(self, proxy: FleetProxy, release: Release) -> None:
        """End a proxy, and start one of another release with its state directory."""
        proxy.__exit__(None, None, None)
        proxy.release = release
        proxy.__enter__()

    def replace_agent(self, machine: FleetMachine, release: Release) -> None:
        """Kill an agent, and start one of another release; the host goes on."""
        machine.kill_agent()
        machine.release = release
        machine.start_agent()

    def replace_host(self, machine: FleetMachine, release: Release) -> None:
        """Drain a host, and start one of another release."""
        client = self.leader.client
        client.drain(machine.name)
        machine.wait_host_end()
        machine.release = release
        machine.start_host()
        client.drain(machine.name, drain=False)
        machine.wait_ready()


def _replace_all(fleet: _Fleet, release: Release, clients: Clients) -> None:
    """Replace every program, and deploy versions meanwhile.

    This is not the order that users are told: one machine comes before the proxies, the other one after them, so that
    each program meets all others in both releases.
    """
    first, second = fleet.machines
    leader = fleet.leader
    standby = next(proxy for proxy in fleet.proxies if proxy is not leader)

    def done(step: str) -> None:
        fleet.check()
        clients.note(f"{step} of {release.name}")

    fleet.replace_agent(first, release)
    done(f"{first.name}: agent")
    fleet.replace_host(first, release)
    fleet.deploy()
    done(f"{first.name}: host")
    fleet.replace_proxy(standby, release)
    done("standby")
    fleet.replace_proxy(leader, release)
    fleet.deploy()
    done("leader")
    fleet.replace_host(second, release)
    done(f"{second.name}: host")
    fleet.replace_agent(second, release)
    fleet.deploy()
    done(f"{second.name}: agent")
