# SPDX-License-Identifier: Apache-2.0
"""Run in locust: one user that starts a greenlet for each request of a schedule, without waiting for responses.

`python -m locust -f` loads this file; LOAD_TEST_PLAN names a JSON file with `moments`, `requests`, `path`, `folder`,
`timeout_s`. Latency counts from the due time, so that requests that start late or wait do not look faster.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from pathlib import Path
from typing import Any

import gevent
import numpy as np
from gevent.pool import Group
from geventhttpclient import HTTPClient
from locust import User, events, task
from locust.exception import StopUser

from load_tests.request_files import read_requests

#: More connections than requests in flight if the host keeps up.
_CONNECTIONS = 256
_BEFORE_S = 0.5


class OpenLoop(User):
    """Send the whole schedule, and end the run."""

    def on_start(self) -> None:
        self._plan = json.loads(Path(os.environ["LOAD_TEST_PLAN"]).read_text())
        self._folder = Path(self._plan["folder"])
        self._bodies = read_requests(Path(self._plan["requests"]))
        timeout = self._plan["timeout_s"]
        self._client = HTTPClient.from_url(
            str(self.host), concurrency=_CONNECTIONS, connection_timeout=timeout, network_timeout=timeout
        )
        self._answered = array("q")
        self._late = array("q")
        self._failed: list[tuple[float, str]] = []

    def _send(self, number: int, intended: float) -> None:
        began = time.perf_counter()
        self._late.append(int((began - intended) * 1e9))
        failure: Exception | None = None
        size = 0
        try:
            response = self._client.post(
                self._plan["path"],
                body=self._bodies[number % len(self._bodies)],
                headers={"Content-Type": "application/json"},
            )
            size = len(response.read())
            if response.status_code != 200:
                failure = RuntimeError(f"HTTP {response.status_code}")
        except Exception as error:  # any exception of a connection counts as a failed request
            failure = error
        latency = time.perf_counter() - intended
        at = intended - self._began
        if failure is None:
            self._answered.extend((int(at * 1e9), int(latency * 1e9)))
        else:
            kind = str(failure) if isinstance(failure, RuntimeError) else type(failure).__name__
            self._failed.append((at, kind))
        events.request.fire(  # type: ignore[no-untyped-call]
            request_type="POST",
            name=self._plan["path"],
            response_time=latency * 1000,
            response_length=size,
            exception=failure,
            context={},
        )

    @task
    def schedule(self) -> None:
        """Start each request at its moment, and wait for the unfinished ones."""
        moments = self._plan["moments"]
        requests = Group()
        self._began = time.perf_counter() + _BEFORE_S
        started = self._folder / "started.part"
        started.write_text(json.dumps(time.time() + _BEFORE_S))
        started.rename(self._folder / "started.json")
        for number, moment in enumerate(moments):
            gevent.sleep(max(0.0, self._began + moment - time.perf_counter()))
            requests.spawn(self._send, number, self._began + moment)
        requests.join(timeout=self._plan["timeout_s"] + 5)
        self._write(len(moments))
        self.environment.runner.quit()
        raise StopUser

    def _write(self, sent: int) -> None:
        np.asarray(self._answered, "<i8").tofile(self._folder / "samples")
        late = np.asarray(self._late, np.float64) / 1e3
        report = {
            "sent": sent,
            "failed": self._failed,
            "late_us": {f"p{q}": float(np.percentile(late, q)) for q in (50, 99)} if late.size else {},
        }
        (self._folder / "report.json").write_text(json.dumps(report))


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _leave_judging_to_the_scenario(environment: Any, **_: Any) -> None:
    environment.process_exit_code = 0
