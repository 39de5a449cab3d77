# SPDX-License-Identifier: Apache-2.0
"""Inject faults of the machine: a full disk, a lost database, a stopped process."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from load_tests.faults.case import Case
from load_tests.faults.clients import MODEL
from serving_proxy.errors import ProxyError

__all__ = ["full_disk", "host_stands_still", "lost_database"]

_DISK_BYTES = 16 << 20
_STANDS_S = 10.0
_NOTICED_S = 10.0


def full_disk(case: Case) -> None:
    """Fill the disk of the state directory: pause must work and the fault be reported; free it, and all recovers."""
    with case.stage(disk_bytes=_DISK_BYTES) as stage:
        stage.client.deploy(MODEL, case.models / "2", version=2, traffic=50, wait=True, timeout=60)
        filler = stage.service.state / "filler"
        with stage.fault():
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                for size in (1 << 20, 1 << 12, 1):
                    with contextlib.suppress(OSError):
                        while True:
                            file.write(bytes(size))
            try:
                stage.client.pause(MODEL)
                stage.service.wait(lambda: _only_baseline(case, stage.service.rest), "pause on a full disk", 10)
            except (ProxyError, RuntimeError) as error:
                case.found.problems.append(f"pause on a full disk: {error}")
            alerts = stage.client.status()
            case.expect("space" in str(alerts) or "disk" in str(alerts), "status: nothing of a full disk")
            filler.unlink()
        stage.client.pause(MODEL, paused=False)
        stage.works(3)


def _only_baseline(case: Case, port: int) -> bool:
    import http.client
    import json

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        for number in range(20):
            connection.request(
                "POST",
                f"/v1/models/{MODEL}:predict",
                json.dumps({"instances": [[1, 2, 3]]}),
                {"x-routing-key": f"user-{number}"},
            )
            answer = connection.getresponse()
            answer.read()
            if answer.headers.get("x-model-version") != "1":
                return False
    finally:
        connection.close()
    return True


def lost_database(case: Case) -> None:
    """Delete the proxy's database while it is down: serving must continue, and verbs must work."""
    with case.stage() as stage:
        stage.client.deploy(MODEL, case.models / "2", version=2, wait=True, timeout=60)
        stage.client.promote(MODEL, 2)
        with stage.fault():
            stage.service.kill_proxy()
            lost = [path for path in stage.service.state.iterdir() if ".db" in path.name or "sqlite" in path.name]
            case.expect(bool(lost), "no database found in the state directory")
            for path in lost:
                path.unlink()
            stage.service.start()
            time.sleep(2)
        try:
            shown = stage.client.versions(MODEL)
            case.expect(shown["baseline"] == 2, f"baseline {shown['baseline']} after the loss, expected 2")
        except ProxyError as error:
            case.found.problems.append(f"versions after the loss: {error}")
        stage.works(3)


def host_stands_still(case: Case) -> None:
    """Stop the host's process for ten seconds: the proxy must notice, and serving must resume with the process."""
    with case.stage() as stage:
        pid = stage.service.any_host_pid()
        assert pid is not None
        begun = time.monotonic()
        with stage.fault(lambda: _STANDS_S):
            os.kill(pid, signal.SIGSTOP)
            noticed = None
            while time.monotonic() < begun + _STANDS_S:
                (host,) = stage.client.status()["hosts"]
                if noticed is None and host["state"] != "ready":
                    noticed = time.monotonic() - begun
                time.sleep(0.1)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        case.found.figures["noticed_s"] = None if noticed is None else round(noticed, 2)
        case.expect(
            noticed is not None and noticed <= _NOTICED_S, f"a host that stands still stayed ready for {_STANDS_S:g} s"
        )
        stage.works(2)
