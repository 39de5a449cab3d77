# SPDX-License-Identifier: Apache-2.0
"""Run proxies with hosts that serve nothing, and write models that have a signature but no graph."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from serving_proxy import Client, messages
from serving_proxy.serve.process import run
from serving_proxy.serve.settings import ServeSettings
from serving_proxy.store import StateLock

ROOT = Path(__file__).resolve().parents[3]
_START_S = 120.0


def write_model(folder: Path, inputs: dict[str, int] | None = None, signature: str = "serving_default") -> Path:
    """Write a SavedModel with one signature: inputs by TensorFlow's number of their dtype, and an output `y`."""
    message = messages.new("tensorflow.SavedModel")
    graph = message.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    made = graph.signature_def[signature]
    for name, dtype in (inputs or {"x": 1}).items():
        made.inputs[name].dtype = dtype
        made.inputs[name].tensor_shape.dim.add(size=-1)
    made.outputs["y"].dtype = 1
    folder.mkdir(parents=True, exist_ok=True)
    # As a whole: a proxy may follow the folder above it.
    draft = folder / "saved_model.pb.draft"
    draft.write_bytes(message.SerializeToString())
    draft.rename(folder / "saved_model.pb")
    return folder


def host_program(folder: Path) -> Path:
    """Write a program that runs the scripted host, to be started instead of the Go host."""
    program = folder / "scripted-host"
    script = ROOT / "tests" / "helpers" / "proxies" / "scripted_host.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def wait_for(found: Callable[[], Any], seconds: float = 60.0, what: str = "") -> Any:
    """Call a function until its result is true, and return the result."""
    end = time.monotonic() + seconds
    while True:
        value = found()
        if value:
            return value
        assert time.monotonic() < end, what or found
        time.sleep(0.02)


def environment_of_checkout() -> dict[str, str]:
    """Return the environment of a program that imports the packages of this checkout."""
    folders = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders)}


class Proxy:
    """Run a proxy with its own state directory, at any free admin port, by default with one scripted host."""

    def __init__(self, folder: Path, *options: str, host: str = "go") -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.options = list(options)
        self.host = host
        folder.mkdir(parents=True, exist_ok=True)

    def arguments(self) -> list[str]:
        """Return the arguments of `serve`."""
        ports = ["--admin-port", "0", "--grpc-port", "0", "--rest-port", "0"]
        return ["--state-dir", str(self.state_dir), "--host", self.host, *ports, *self.options]

    @property
    def url(self) -> str:
        """Return its admin port."""
        return str(self.told()["admin"])

    def client(self, token: str | None = None) -> Client:
        """Return a client of it."""
        return Client(self.url, token)

    def headers(self) -> dict[str, str]:
        """Return the authorization header of its own user, for other HTTP clients."""
        token = (self.state_dir / "admin.token").read_text(encoding="ascii").strip()
        return {"Authorization": f"Bearer {token}"}

    def desired(self) -> dict[str, Any]:
        """Return the desired state for hosts, without the generation."""
        found: dict[str, Any] = json.loads((self.state_dir / "desired.json").read_bytes())
        del found["generation"]
        return found

    def host_pids(self) -> list[int]:
        """Return the ids of its running host processes."""
        found = []
        for path in (self.state_dir / "hosts").glob("*/actual.json"):
            pid = int(json.loads(path.read_bytes())["pid"])
            # The process may end meanwhile.
            with contextlib.suppress(OSError):
                if b"scripted_host" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def kill_hosts(self) -> None:
        """Stop the remaining hosts."""
        for pid in self.host_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def told(self) -> dict[str, Any]:
        """Return the content of the lock."""
        try:
            text = (self.state_dir / "proxy.lock").read_text(encoding="utf-8")
            found: dict[str, Any] = json.loads(text)
        except (OSError, ValueError):
            return {}
        return found


class ProxyThread(Proxy):
    """Run a proxy in a thread of this process: real sockets, real hosts, and no second start of Python."""

    def start(self) -> ProxyThread:
        """Start it and wait until it responds."""
        self._host_before = os.environ.get("RECPROCESSOR_HOST")
        os.environ["RECPROCESSOR_HOST"] = str(host_program(self.folder))
        self._error: BaseException | None = None
        if (self.state_dir / "proxy.lock").exists():
            # It names the port of an earlier proxy until somebody else has it.
            StateLock(self.state_dir).close()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_for(self._is_up, _START_S, "a proxy that answers")
        return self

    def stop(self) -> None:
        """Stop it like a signal would."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_START_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    @property
    def is_running(self) -> bool:
        """Return whether it is still running."""
        return self._thread.is_alive()

    def __enter__(self) -> ProxyThread:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._thread.is_alive():
                self.stop()
        finally:
            self.kill_hosts()
            del os.environ["RECPROCESSOR_HOST"]
            if self._host_before is not None:
                os.environ["RECPROCESSOR_HOST"] = self._host_before

    def settings(self) -> ServeSettings:
        """Parse the options like the command line."""
        given: dict[str, Any] = {}
        words = iter(self.arguments())
        for flag in words:
            name = flag.removeprefix("--").replace("-", "_")
            if name in {"keep_hosts", "allow_reload_rpc", "discard_state", "new_store"}:
                given[name] = True
            elif name == "model_root":
                given[name] = (*given.get(name, ()), next(words))
            else:
                given[name] = next(words)
        return ServeSettings(**given)

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            await run(self.settings(), self._ended)

        try:
            asyncio.run(main())
        except BaseException as error:
            self._error = error

    def _is_up(self) -> bool:
        if self._error is not None:
            raise self._error
        return "admin" in self.told()


class ProxyProcess(Proxy):
    """Run `serving-proxy serve` in a separate process, which can be killed."""

    process: subprocess.Popen[bytes]

    @property
    def log_path(self) -> Path:
        """Return its log."""
        return self.folder / "proxy.log"

    def start(self) -> ProxyProcess:
        """Start it and wait until it responds."""
        self.spawn()
        return self.start_waiting()

    def start_waiting(self) -> ProxyProcess:
        """Wait until a started proxy responds."""
        wait_for(self._is_up, _START_S, "a proxy that answers")
        return self

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start it."""
        environment = environment_of_checkout() | {"RECPROCESSOR_HOST": str(host_program(self.folder))}
        command = [sys.executable, "-m", "serving_proxy", "serve", *self.arguments()]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=environment, cwd=ROOT)
        return self.process

    def kill(self) -> None:
        """Kill it as a crash would; its hosts continue."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds: float = 60.0) -> int:
        """Stop it as an operator would, and return its exit code."""
        self.process.terminate()
        return self.process.wait(seconds)

    def __enter__(self) -> ProxyProcess:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
        self.kill_hosts()

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log_path.read_text(encoding="utf-8")[-2000:]
        told = self.told()
        return told.get("pid") == self.process.pid and "admin" in told
