# SPDX-License-Identifier: Apache-2.0
"""Run the proxies of an installed chart as processes, with the command line and the files of their pods."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import sys
from pathlib import Path

import httpx

from helpers.deploy.cluster import Cluster, Json
from helpers.deploy.manifests import move
from helpers.proxies.proxy_runs import ROOT, ProxyProcess, environment_of_checkout
from serving_proxy import Client
from serving_proxy.leadership.kubernetes import ACCOUNT

# As in a pod, the files of the service account are where the program looks for them. In a namespace of mounts of its
# own, nobody else sees that.
_MOUNT = f'mount -t tmpfs tmpfs /run; mkdir -p {ACCOUNT}; mount --bind "$0" {ACCOUNT}; exec "$@"'


class PodProxy(ProxyProcess):
    """The proxy of a pod that the controller manager has made.

    Parameters
    ----------
    cluster : Cluster
    folder : Path
        For the volumes of the pod; `shared` beside it is the volume that proxies share.
    namespace : str
    name : str
        Of the pod.
    """

    def __init__(self, cluster: Cluster, folder: Path, namespace: str, name: str) -> None:
        super().__init__(folder)
        self._cluster = cluster
        self._namespace = namespace
        self.name = name
        pod = cluster.get("pod", name, namespace)
        (container,) = pod["spec"]["containers"]
        self._volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        places = {mount["mountPath"]: self._place(mount["name"]) for mount in container["volumeMounts"]}
        self._arguments = move(container["args"], places)
        self.account = folder / "account"
        self.state_dir = Path(self._value("--state-dir"))
        self._set("--admin-port", "0")
        self._set("--admin-address", "127.0.0.1")
        self.authority = folder / "tls" / "ca.crt"
        self._write_account(pod)

    def arguments(self) -> list[str]:
        """Return the arguments of `serve`."""
        return self._arguments

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start it."""
        environment = environment_of_checkout() | {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._cluster.port),
        }
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        command = ["unshare", "--mount", *user, "sh", "-ec", _MOUNT, str(self.account)]
        command += [sys.executable, "-m", "serving_proxy", "serve", *self.arguments()]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=environment, cwd=ROOT)
        return self.process

    def client(self, token: str | None = None) -> Client:
        """Return a client with the token of the release."""
        token = token or Path(self._value("--token-file")).read_text(encoding="ascii")
        return Client(self.url, token, verify=self.authority)

    def health(self) -> str:
        """Return `ok` if it leads, `standby`, or an empty text if it does not answer."""
        try:
            return str(self.ask("/healthz").json()["status"])
        except (httpx.HTTPError, KeyError):
            return ""

    def ask(self, path: str) -> httpx.Response:
        """Return its answer to a request without a token; clients would go on to the proxy that leads."""
        context = ssl.create_default_context(cafile=str(self.authority))
        return httpx.get(f"{self.url}{path}", verify=context, trust_env=False, timeout=5)

    def log(self) -> str:
        """Return its log."""
        return self.log_path.read_text(encoding="utf-8")

    def _place(self, volume: str) -> Path:
        """Return the folder of a volume, with the content of its secret."""
        place = self.folder.parent / volume if volume in {"shared", "models"} else self.folder / volume
        place.mkdir(parents=True, exist_ok=True)
        found = self._volumes[volume].get("secret")
        if found is not None:
            secret = self._cluster.get("secret", found["secretName"], self._namespace)
            for key, value in secret["data"].items():
                file = place / key
                file.write_bytes(base64.b64decode(value))
                file.chmod(0o440)
        return place

    def _write_account(self, pod: Json) -> None:
        """Write the files that a kubelet gets for a pod: with a token that is valid as long as the pod exists."""
        self.account.mkdir(exist_ok=True)
        bound = ["--bound-object-kind", "Pod", "--bound-object-name", self.name]
        bound += ["--bound-object-uid", pod["metadata"]["uid"]]
        account = pod["spec"]["serviceAccountName"]
        token = self._cluster.ask("create", "token", account, "--namespace", self._namespace, *bound)
        root = self._cluster.get("configmap", "kube-root-ca.crt", self._namespace)["data"]["ca.crt"]
        for name, content in (("token", token.strip()), ("namespace", self._namespace), ("ca.crt", root)):
            (self.account / name).write_text(content)

    def _value(self, option: str) -> str:
        return self._arguments[self._arguments.index(option) + 1]

    def _set(self, option: str, value: str) -> None:
        self._arguments[self._arguments.index(option) + 1] = value
