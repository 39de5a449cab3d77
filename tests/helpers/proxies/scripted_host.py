# SPDX-License-Identifier: Apache-2.0
"""Act as a host with its command line and files, but without models, to test supervision.

It takes its lock, follows `desired.json` and reports every version as loading, warming up and ready. A path that
contains a file `refuse` fails with the text of that file, until its entry was removed, as with a real host. A path with
a file `precision` computes with that precision. Files in the folder of its lock control it:

* `drain_s`: how long it drains on SIGTERM before it ends
* `exit_code`: it ends at once with this code
* `cpus`: the CPUs that it reports; it then reports for versions the CPUs that `desired.json` gives them
* `silent`: it gives no signs of life
* `start_s`: how long it reports nothing after its start
* `refuse`: versions that are not ready yet fail with the text of this file
* `features`: the features that it reports, one a line; without the file it is of a release that reports none
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_STEP_S = 0.03


class Host:
    def __init__(self, options: argparse.Namespace) -> None:
        self.state_dir = Path(options.state_dir)
        self.name = options.host_id
        self.folder = self.state_dir / "hosts" / self.name
        self.endpoints = {
            "grpc": f"{options.address}:{options.grpc_port}",
            "rest": f"{options.address}:{options.rest_port}",
        }
        self.generation = 0
        self.desired_error: str | None = None
        self.models: dict[str, dict[str, dict[str, Any]]] = {}
        self.refused: set[str] = set()
        self.state = "starting"
        self.written = ""
        self.ending = False
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = (self.folder / "lock").open("a")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"host '{self.name}': another host has its lock")
        signal.signal(signal.SIGTERM, self.end)
        time.sleep(float(self.read("start_s") or 0))

    def end(self, *_: object) -> None:
        self.ending = True

    def run(self) -> None:
        while not self.ending:
            if not self.read("silent"):
                (self.folder / "heartbeat").touch()
            self.follow()
            self.write()
            code = self.read("exit_code")
            if code:
                print("asked to end")
                sys.exit(int(code))
            time.sleep(_STEP_S)
        self.state = "draining"
        self.write()
        time.sleep(float(self.read("drain_s") or 0))

    def read(self, name: str) -> str:
        return text_of(self.folder / name)

    def follow(self) -> None:
        try:
            desired = json.loads((self.state_dir / "desired.json").read_bytes())
        except (OSError, ValueError):
            self.state = "ready"
            return
        self.generation = desired["generation"]
        self.desired_error = self.read("refuse_all") or None
        models = {}
        for model, wanted in desired["models"].items():
            before = self.models.get(model, {})
            models[model] = {
                n: self.advance(before.get(n), version["path"]) for n, version in wanted["versions"].items()
            }
        given = desired.get("hosts", {}).get(self.name, {}).get("cpusets", {})
        for name, cpus in given.items():
            model, _, number = name.rpartition("/")
            if "cpuset" in models[model][number]:
                models[model][number]["cpuset"] = cpus
        self.models = models
        hosts = desired.get("hosts", {})
        if any(hosts.get(name, {}).get("drained") for name in (self.name, "*")):
            self.ending = self.state == "ready"
        else:
            self.state = "ready"

    def advance(self, before: dict[str, Any] | None, path: str) -> dict[str, Any]:
        states = ["loading", "warming", "ready"]
        at = 0 if before is None or before["path"] != path else min(2, states.index(before["state"]) + 1) if (
            before["state"] in states) else 0  # fmt: skip
        if before is None or before["path"] != path:
            self.refused.discard(path)
        elif path in self.refused:
            return before
        refusal = text_of(Path(path, "refuse"))
        if refusal:
            self.refused.add(path)
        refusal = refusal or (self.read("refuse") if at < 2 else "")
        if refusal:
            return {"state": "failed", "path": path, "error": refusal}
        if at and Path(path, "slow").exists():
            at = 0
        computes = text_of(Path(path, "precision")) or None
        shown = {"error": None, "in_flight": 0, "cpuset": "0", "precision": computes}
        return {"state": states[at], "path": path, **shown}

    def features(self) -> dict[str, list[str]]:
        found = self.read("features").split()
        return {"features": found} if found else {}

    def write(self) -> None:
        actual = {
            "schema": 1, "host": self.name, "pid": os.getpid(), "started": "2026-11-21T19:00:00Z",
            "cpus": self.read("cpus") or "0",
            "generation": self.generation, "desired_error": self.desired_error, "state": self.state,
            "endpoints": self.endpoints, "models": {m: {"versions": v} for m, v in self.models.items()},
            "version": "9.1", **self.features(),
        }  # fmt: skip
        text = json.dumps(actual)
        if text != self.written:
            beside = self.folder / "actual.json.new"
            # Like a host on a full disk: it continues, and tries again.
            with contextlib.suppress(OSError):
                beside.write_text(text, encoding="utf-8")
                beside.rename(self.folder / "actual.json")
                self.written = text


def text_of(path: Path) -> str:
    """Return the text of a file; "" if there is none, which may have been removed just now."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--state-dir", "--host-id", "--grpc-port", "--rest-port", "--address", "--cpus", "--tls-cert"):
        parser.add_argument(flag)
    parser.add_argument("--drain-seconds", type=float, default=30.0)
    parser.add_argument("--admin")
    parser.add_argument("--token-file")
    parser.add_argument("--allow-reload-rpc", action="store_true")
    Host(parser.parse_args()).run()


if __name__ == "__main__":
    main()
