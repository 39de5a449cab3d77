# SPDX-License-Identifier: Apache-2.0
"""Kill hosts and proxies with kill -9 at random moments of deploys."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from random import Random

from load_tests.faults.case import Case, Stage, another
from load_tests.faults.clients import MODEL
from serving_proxy.errors import ProxyError

__all__ = ["kills"]

#: Share of the kills that hit the proxy.
_PROXY_SHARE = 0.2
#: Range of the moments [s] after recovery.
_LEAST_S, _MOST_S = 0.1, 1.5
_BACK_S = 60.0


def _change(stage: Stage, draw: Random, ended: threading.Event) -> None:
    """Deploy, promote and roll back versions until the end, whether or not a verb succeeds."""
    serving, killed = 1, 0
    with stage.service.client() as client:
        while not ended.is_set():
            number = another(draw, serving)
            try:
                client.deploy(
                    MODEL,
                    stage.case.models / str(number),
                    version=number,
                    traffic=draw.choice((0, 10, 50)),
                    wait=True,
                    timeout=20,
                )
                client.traffic(MODEL, {number: draw.choice((5, 30, 80))})
                client.promote(MODEL, number)
                serving = number
                if draw.random() < 0.5:
                    serving = int(client.rollback(MODEL).get("baseline") or serving)
                for version in client.versions(MODEL)["versions"]:
                    if version["version"] not in (serving, number):
                        client.undeploy(MODEL, version["version"])
                killed += 1
            except ProxyError:
                # The proxy or the host has just been killed; the next change follows a moment later.
                ended.wait(0.2)
    stage.case.found.figures["changes"] = killed


def kills(case: Case) -> None:
    """Kill hosts, and sometimes the proxy, while versions are deployed, promoted and rolled back."""
    with case.stage() as stage:
        ended = threading.Event()
        changing = threading.Thread(target=_change, args=(stage, case.draw, ended), daemon=True)
        changing.start()
        draw, proxies = Random(f"{case.seed}/kills"), 0
        try:
            for _ in range(case.kills):
                time.sleep(draw.uniform(_LEAST_S, _MOST_S))
                of_proxy = draw.random() < _PROXY_SHARE
                proxies += of_proxy
                with stage.fault():
                    if of_proxy:
                        stage.service.kill_proxy()
                        stage.service.start()
                    else:
                        _kill_host(stage)
        finally:
            ended.set()
            changing.join(60)
        case.found.figures["proxies_killed"] = proxies
        stage.works(3)


def _kill_host(stage: Stage) -> None:
    pid = stage.service.wait(stage.service.any_host_pid, "a host", _BACK_S)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    stage.clients.wait_answered(_BACK_S, time.monotonic())
