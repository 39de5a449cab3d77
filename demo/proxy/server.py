# SPDX-License-Identifier: Apache-2.0
"""Run `serving-proxy serve` in a separate process, and its verbs as a user would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from demo.measure import ServingError
from serving_proxy import Client

START_S = 120.0
SETTLE_S = 30.0
DRAIN_S = 5.0
_POLL_S = 0.05


def serve_words(state: Path) -> list[str]:
    """Return the arguments of `serve`: free ports, and one CPU (if there are several) for optimizing and loading."""
    words = ["serve", "--state-dir", str(state), "--grpc-port", "0", "--rest-port", "0", "--admin-port", "0"]
    cpus = sorted(os.sched_getaffinity(0))
    return [*words, "--maintenance-cpus", str(cpus[-1])] if len(cpus) > 1 else words


class Proxy:
    """Give access to a running proxy.

    Attributes
    ----------
    url : str
        URL of its dashboard and admin API.
    token_file : Path
        Contains the token for the browser; the command line finds the file without help.
    grpc, rest : str
        Addresses at which its host serves requests.
    client : Client
        Used to read state; all changes are made with `verb`.
    """

    def __init__(self, root: Path, url: str, token_file: Path, client: Client) -> None:
        self._root, self.url, self.token_file, self.client = root, url, token_file, client
        self.grpc, self.rest = "", ""

    def verb(self, *words: str) -> dict[str, Any]:
        """Run `serving-proxy` with these arguments and return its output, parsed as JSON.

        Raises
        ------
        ServingError
            If its status is not 0; the message is its own.
        """
        command = [sys.executable, "-m", "serving_proxy", *words, "--json"]
        environment = os.environ | {"SERVING_PROXY_SERVER": self.url}
        done = subprocess.run(
            command, cwd=self._root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["nothing"]
            raise ServingError(f"serving-proxy {words[0]}: ended with status {done.returncode}; it said: {said[-1]}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def settle(self) -> None:
        """Wait until the host has applied the last change."""
        wanted = self.client.status()["generation"]
        _until(lambda: self._host()["generation"] >= wanted, SETTLE_S, "the host took up what was asked for")

    def wait_for_host(self) -> None:
        """Wait until its host serves requests."""
        _until(lambda: self._host().get("endpoints", {}).get("rest"), START_S, "a host that answers")
        endpoints = self._host()["endpoints"]
        self.grpc, self.rest = endpoints["grpc"], endpoints["rest"]

    def _host(self) -> dict[str, Any]:
        hosts = [host for host in self.client.status()["hosts"] if host["alive"]]
        return hosts[0] if hosts else {"generation": -1}


@contextlib.contextmanager
def serving(root: Path, state: Path, log: Path) -> Iterator[Proxy]:
    """Start a proxy with one host, and stop both at the end.

    Parameters
    ----------
    root : Path
        The top of the repository.
    state : Path
        Its state directory.
    log : Path
        File for its log.
    """
    command = [sys.executable, "-m", "serving_proxy", *serve_words(state), "--drain-timeout", f"{DRAIN_S:g}"]
    with contextlib.ExitStack() as stack:
        # In its own session: Ctrl-C at the terminal reaches only this process, which then stops the proxy in order.
        with _held_signals(), log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=root, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            stack.callback(_stop, process)

        def admin_address() -> str | None:
            if process.poll() is not None:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
                raise ServingError(f"serving-proxy serve: ended with status {process.returncode}\n{tail}")
            with contextlib.suppress(OSError, ValueError, KeyError):
                found = json.loads((state / "proxy.lock").read_text())
                return str(found["admin"]) if found["pid"] == process.pid else None
            return None

        url = _until(admin_address, START_S, f"a proxy that answers; its log is {log}")
        client = stack.enter_context(Client(url))
        proxy = Proxy(root, url, state / "admin.token", client)
        proxy.wait_for_host()
        yield proxy


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the proxy, which stops its host; wait for both."""
    with _held_signals():
        process.terminate()
        try:
            process.wait(DRAIN_S + 25.0)
        except subprocess.TimeoutExpired:
            # Its hosts would survive it: they have their own sessions, and are identified by their parent.
            for host in _children(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(host, signal.SIGKILL)
            process.kill()
            process.wait()


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextlib.contextmanager
def _held_signals() -> Iterator[None]:
    """Delay signals that would end this process until the end of the block."""
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    came: list[int] = []
    before = {number: signal.signal(number, lambda found, _: came.append(found)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def _until(found: Callable[[], Any], seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while True:
        value = found()
        if value:
            return value
        if time.monotonic() > end:
            raise ServingError(f"serving-proxy: waited {seconds:g} s, expected {what}")
        time.sleep(_POLL_S)
