# SPDX-License-Identifier: Apache-2.0
"""What the cases of `bench_fleet` share: how much they measure, certificates, models, and a proxy for agents."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from load_tests._programs import ProgramError
from load_tests._releases import TODAY, Release
from serving_proxy import Client, messages

__all__ = ["FleetProxy", "Setup", "make_certificates", "wait_until", "write_model"]

_START_S = 120.0


@dataclass(frozen=True)
class Setup:
    """How much a case measures.

    Parameters
    ----------
    quick : bool
        Tiny sizes: the figures are no measurement.
    """

    quick: bool

    @property
    def agents(self) -> int:
        """Number of agents that follow the proxy."""
        return 8 if self.quick else 100

    @property
    def changes(self) -> int:
        """Number of changes whose way to all agents is measured."""
        return 3 if self.quick else 50

    @property
    def models(self) -> int:
        """Number of models in the state."""
        return 2 if self.quick else 20

    @property
    def seconds(self) -> float:
        """How long clients send requests before and after a host dies [s]."""
        return 1.0 if self.quick else 3.0

    @property
    def rounds(self) -> int:
        """How often a host is killed."""
        return 1 if self.quick else 5


class FleetProxy:
    """Run a proxy with TLS that agents can follow.

    Parameters
    ----------
    folder : Path
        Must contain `proxy.crt`, `proxy.key` and `ca.crt`, which `make_certificates` writes.
    name : str
        Name of its state directory, below `folder`.
    options : sequence of str
        Further options of `serve`.
    engine : str
    release : Release

    Attributes
    ----------
    release : Release
        May be changed before the proxy is started again.
    """

    client: Client
    url: str

    def __init__(
        self,
        folder: Path,
        name: str = "proxy",
        options: Sequence[str] = (),
        engine: str = "agents",
        release: Release = TODAY,
    ) -> None:
        self.release = release
        self._folder, self._name, self._options, self._engine = folder, name, options, engine
        self._port = 0
        self.token_file = folder / "agents.token"
        self.admin_token_file = folder / "admin.token"
        self.ca_file = folder / "ca.crt"
        self._trusted = ssl.create_default_context(cafile=str(self.ca_file))

    def __enter__(self) -> FleetProxy:
        self.token_file.write_text("the-token-of-the-agents\n")
        self.admin_token_file.write_text("the-token-of-the-operators\n")
        state = self._folder / self._name
        command = self.release.command("serving_proxy", "serve", "--state-dir", state, "--engine", self._engine)
        command += ["--admin-port", str(self._port), "--agent-token-file", str(self.token_file)]
        command += ["--token-file", str(self.admin_token_file), *self._options]
        command += ["--admin-tls-cert", str(self._folder / "proxy.crt"), "--admin-tls-key"]
        command.append(str(self._folder / "proxy.key"))
        log = self._folder / f"{self._name}.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=self.release.root, env=self.release.environment
            )

        def told() -> dict[str, Any]:
            if self._process.poll() is not None:
                raise ProgramError("serving-proxy serve", self._process.returncode, log.read_text(errors="replace"))
            try:
                found: dict[str, Any] = json.loads((state / "proxy.lock").read_text())
            except (OSError, ValueError):
                return {}
            return found if "admin" in found and found["pid"] == self._process.pid else {}

        try:
            self.url = wait_until(told)["admin"].replace("//0.0.0.0:", "//127.0.0.1:")
            # One that is started again is found by the same agents.
            self._port = int(self.url.rpartition(":")[2])
            self.client = Client(self.url, self.admin_token_file.read_text().strip(), verify=self.ca_file)
        except BaseException:
            self._process.kill()
            raise
        return self

    @property
    def leads(self) -> bool:
        """Return whether it answers, and no other proxy leads; a client would go on to the one that does."""
        try:
            answer = httpx.get(f"{self.url}/healthz", verify=self._trusted, trust_env=False, timeout=5)
            return bool(answer.json()["status"] == "ok")
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """Kill the proxy, as a crash would."""
        self._process.kill()
        self._process.wait()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()
        self._process.terminate()
        self._process.wait(30)


def wait_until(found: Callable[[], Any], seconds: float = _START_S) -> Any:
    """Call a function until its result is true, and return the result.

    Raises
    ------
    TimeoutError
    """
    end = time.monotonic() + seconds
    while not (value := found()):
        if time.monotonic() > end:
            raise TimeoutError(f"{getattr(found, '__name__', found)}: not true within {seconds:g} s")
        time.sleep(0.02)
    return value


def make_certificates(folder: Path, *addresses: str) -> None:
    """Write a certificate for 127.0.0.1 and other addresses, and the authority that has signed it, with openssl."""
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-days", "2"]
    _run(*make, "-subj", "/CN=authority", "-keyout", folder / "ca.key", "-out", folder / "ca.crt")
    named = ",".join(f"IP:{address}" for address in ("127.0.0.1", *addresses))
    names = ["-addext", f"subjectAltName={named}", "-addext", "basicConstraints=critical,CA:FALSE"]
    signed: list[str | os.PathLike[str]] = ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key"]
    _run(*make, "-subj", "/CN=proxy", *names, *signed, "-keyout", folder / "proxy.key", "-out", folder / "proxy.crt")


def write_model(folder: Path) -> Path:
    """Write a SavedModel with a signature and no graph, for cases without hosts."""
    message = messages.new("tensorflow.SavedModel")
    graph = message.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    signature = graph.signature_def["serving_default"]
    for tensors, name in ((signature.inputs, "x"), (signature.outputs, "y")):
        tensors[name].dtype = 1
        tensors[name].tensor_shape.dim.add(size=-1)
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())
    return folder


def _run(*command: str | os.PathLike[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
