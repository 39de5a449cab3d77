# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy serve` in a process of its own, and its verbs, run as a user runs them."""

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
    """Answer the words of `serve`: any free ports, and one CPU of several to optimize and load on."""
    words = ["serve", "--state-dir", str(state), "--grpc-port", "0", "--rest-port", "0", "--admin-port", "0"]
    cpus = sorted(os.sched_getaffinity(0))
    return [*words, "--maintenance-cpus", str(cpus[-1])] if len(cpus) > 1 else words


class Proxy:
    """A proxy that answers.

    Attributes
    ----------
    url : str
        Its page and admin API.
    token_file : Path
        Holds the token that a browser is asked for; the command line finds it by itself.
    grpc, rest : str
        Where its host answers requests.
    client : Client
        For what the demo looks at; what it changes, it changes by `verb`.
    """

    def __init__(self, root: Path, url: str, token_file: Path, client: Client) -> None:
        self._root, self.url, self.token_file, self.client = root, url, token_file, client
        self.grpc, self.rest = "", ""

    def verb(self, *words: str) -> dict[str, Any]:
        """Run `serving-proxy` with these words and answer what it says as JSON.

        Raises
        ------
        ServingError
            It ends with a status other than 0; the message is its own.
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
        """Wait until the host has what was last asked for."""
        wanted = self.client.status()["generation"]
        _until(lambda: self._host()["generation"] >= wanted, SETTLE_S, "the host took up what was asked for")

    def wait_for_host(self) -> None:
        """Wait until its host answers requests."""
        _until(lambda: self._host().get("endpoints", {}).get("rest"), START_S, "a host that answers")
        endpoints = self._host()["endpoints"]
        self.grpc, self.rest = endpoints["grpc"], endpoints["rest"]

    def _host(self) -> dict[str, Any]:
        hosts = [one for one in self.client.status()["hosts"] if one["alive"]]
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
        Where it writes its log.
    """
    command = [sys.executable, "-m", "serving_proxy", *serve_words(state), "--drain-timeout", f"{DRAIN_S:g}"]
    with contextlib.ExitStack() as stack:
        # In a session of its own: Ctrl-C at the terminal reaches this process, which then ends the proxy in order.
        with _held_signals(), log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=root, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            stack.callback(_stop, process)

        def told() -> str | None:
            if process.poll() is not None:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
                raise ServingError(f"serving-proxy serve: ended with status {process.returncode}\n{tail}")
            with contextlib.suppress(OSError, ValueError, KeyError):
                found = json.loads((state / "proxy.lock").read_text())
                return str(found["admin"]) if found["pid"] == process.pid else None
            return None

        url = _until(told, START_S, f"a proxy that answers; its log is {log}")
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
            # Its hosts would outlive it: they are in sessions of their own, and are told apart by their parent.
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
    """Let signals that would end this process wait for the end of the block."""
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
