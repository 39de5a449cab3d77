# SPDX-License-Identifier: Apache-2.0
"""Run the control plane of Kubernetes on the loopback address: etcd, the API server and the controller manager.

`make test-kubernetes` compiles them. There is neither a scheduler nor a kubelet: controllers make pods, which stay
unscheduled, and tests say what a kubelet would say about them.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from helpers.proxies.proxy_runs import wait_for
from helpers.system.certificates import make_authority, make_certificate
from helpers.system.programs import ROOT, run
from load_tests.ports import free_port

Json = dict[str, Any]
PROGRAMS = ROOT / "build" / "cluster"
TOOLS = ROOT / "build" / "deploy-tools"
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager")
# Starting all takes some ten seconds on two CPUs; on a busy machine much longer.
_START_S = 240.0
_TRIES = 3


def missing_programs() -> list[str]:
    """Return what `make test-kubernetes` has not built or fetched yet."""
    wanted = [*(PROGRAMS / name for name in NAMES), TOOLS / "helm", TOOLS / "kubectl"]
    return [str(path.relative_to(ROOT)) for path in wanted if not path.exists()]


class Cluster:
    """The control plane of a cluster without nodes.

    Attributes
    ----------
    port : int
        Of the API server, at 127.0.0.1.
    authority : Path
        The certificate of its authority.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        authority = make_authority(folder, "ca")
        self.authority = authority.chain
        make_certificate(folder, "api", authority)
        make_authority(folder, "accounts")
        self._token = secrets.token_hex(16)
        self._controllers = secrets.token_hex(16)
        (folder / "tokens.csv").write_text(
            f'{self._token},admin,admin,"system:masters"\n'
            f"{self._controllers},system:kube-controller-manager,controllers\n"
        )

    @property
    def url(self) -> str:
        """Return the URL of the API server."""
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> Cluster:
        try:
            self._begin()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End all programs."""
        for name in reversed(NAMES):
            if name in self._processes:
                self._processes[name].kill()
                self._processes[name].wait()

    def _begin(self) -> None:
        self._start("etcd", *self._etcd_options())
        for _ in range(_TRIES):
            self.port = free_port()
            self.start_api_server()
            # Somebody else may have taken the port meanwhile.
            if wait_for(lambda: self._ended("kube-apiserver") or self._is_ready(), _START_S, "an API server") is True:
                break
        assert self._is_ready(), self.log("kube-apiserver")
        self._write_access("admin.json", self._token)
        self._write_access("controllers.json", self._controllers)
        self._start("kube-controller-manager", *self._controller_options())
        # Without it no pod is made.
        wait_for(lambda: self.exists("serviceaccount", "default", "default"), _START_S, "the default service account")

    def start_api_server(self) -> None:
        """Start the API server at its port, without waiting until it answers."""
        self._start("kube-apiserver", *self._server_options())

    def kill_api_server(self) -> None:
        """Kill the API server; its state is in etcd."""
        self._processes["kube-apiserver"].kill()
        self._processes["kube-apiserver"].wait()

    def wait_until_ready(self) -> None:
        """Wait until a started API server answers."""
        wait_for(self._is_ready, _START_S, "an API server that answers")

    def signal_api_server(self, number: int) -> None:
        """Send the API server a signal, such as SIGSTOP: it then accepts connections, and does not answer."""
        self._processes["kube-apiserver"].send_signal(number)

    def log(self, name: str) -> str:
        """Return the end of a program's log."""
        return (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def kubectl(self, *words: object, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as an administrator, with a text as its standard input."""
        return self._run("kubectl", *words, given=given)

    def ask(self, *words: object, given: str | None = None) -> str:
        """Run kubectl, which must succeed, and return its output."""
        ended = self.kubectl(*words, given=given)
        assert ended.returncode == 0, f"{ended.args}\n{ended.stderr}"
        return ended.stdout

    def helm(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run helm as an administrator."""
        return self._run("helm", *words)

    def get(self, kind: str, name: str, namespace: str) -> Json:
        """Return an object."""
        found: Json = json.loads(self.ask("get", kind, name, "--namespace", namespace, "--output", "json"))
        return found

    def all(self, kind: str, namespace: str, *options: str) -> list[Json]:
        """Return all objects of a kind."""
        shown = self.ask("get", kind, "--namespace", namespace, "--output", "json", *options)
        found: list[Json] = json.loads(shown)["items"]
        return found

    def exists(self, kind: str, name: str, namespace: str) -> bool:
        """Return whether there is an object."""
        return self.kubectl("get", kind, name, "--namespace", namespace).returncode == 0

    def make_namespace(self, name: str, level: str = "restricted") -> None:
        """Make a namespace that enforces a level of the Pod Security Standards."""
        labels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn")}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.ask("create", "--filename", "-", given=json.dumps(made))

    def set_ready(self, pod: str, namespace: str) -> None:
        """Say about a pod what a kubelet says when its containers are ready."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("Initialized", "ContainersReady", "Ready")
        ]
        status = json.dumps({"status": {"phase": "Running", "conditions": conditions}})
        self.ask("patch", "pod", pod, "--namespace", namespace, "--subresource", "status", "--patch", status)

    def _run(self, program: str, *words: object, given: str | None = None) -> subprocess.CompletedProcess[str]:
        # Caches and settings are in the home directory.
        home = {"HOME": str(self._folder), "KUBECONFIG": str(self._folder / "admin.json")}
        return run([TOOLS / program, *words], timeout=120, input=given or "", env=os.environ | home)

    def _start(self, name: str, *options: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [PROGRAMS / name, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder
            )

    def _ended(self, name: str) -> str:
        return "" if self._processes[name].poll() is None else f"{name} has ended"

    def _is_ready(self) -> bool:
        try:
            context = ssl.create_default_context(cafile=str(self.authority))
            headers = {"Authorization": f"Bearer {self._token}"}
            answer = httpx.get(f"{self.url}/readyz", verify=context, headers=headers, trust_env=False, timeout=10)
            return answer.status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _write_access(self, file: str, token: str) -> None:
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        access = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "user"}}],
            "current-context": "here",
        }
        (self._folder / file).write_text(json.dumps(access))

    def _etcd_options(self) -> list[str]:
        at = f"unix://{self._folder}/etcd.sock"
        return [
            f"--data-dir={self._folder}/etcd",
            f"--listen-client-urls={at}",
            f"--advertise-client-urls={at}",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--unsafe-no-fsync",
        ]

    def _server_options(self) -> list[str]:
        return [
            f"--etcd-servers=unix://{self._folder}/etcd.sock",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            # Addresses of API servers must not be loopback addresses.
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--cert-dir={self._folder}",
            f"--tls-cert-file={self._folder}/api.crt",
            f"--tls-private-key-file={self._folder}/api.key",
            f"--token-auth-file={self._folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={self._folder}/accounts.crt",
            f"--service-account-signing-key-file={self._folder}/accounts.key",
            "--service-cluster-ip-range=10.96.0.0/16",
        ]

    def _controller_options(self) -> list[str]:
        return [
            f"--kubeconfig={self._folder}/controllers.json",
            f"--root-ca-file={self.authority}",
            f"--service-account-private-key-file={self._folder}/accounts.key",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
        ]
