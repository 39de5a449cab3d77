# SPDX-License-Identifier: Apache-2.0
"""A Lease of Kubernetes (coordination.k8s.io/v1), over the API of the cluster with the pod's service account.

`leaseTransitions` is the term. Each write names the `resourceVersion` that was read, and the API server refuses it if
the Lease has changed since: a proxy takes exactly the lease that it has seen not being renewed.
"""

from __future__ import annotations

import copy
import math
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from serving_proxy.errors import InvalidError, ProxyError, UnavailableError
from serving_proxy.leadership.lease import Held
from serving_proxy.system.files import read_regular

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_KIND = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
_URL, _RENEWALS = "recprocessor/url", "recprocessor/renewals"
_MOST_BYTES = 64 * 1024
_RIGHTS = "the rights to get, create and update leases (a Role, as in the Helm chart)"
_TOKEN = "a token of a service account that is still valid"

Json = dict[str, Any]


class KubernetesLease:
    """A Lease object.

    Parameters
    ----------
    name : str
    namespace : str
    server : str
        URL of the API server.
    account : Path
        Folder with `token`, which is read for each request because Kubernetes replaces it, and `ca.crt`.
    request_s : float [s]
        Longest time to wait for an answer.

    Raises
    ------
    InvalidError
        The certificates of the API server cannot be read.
    """

    #: It may be lost while the log is not.
    is_apart = True

    def __init__(self, name: str, namespace: str, server: str, account: Path, request_s: float) -> None:
        self._name = name
        self._namespace = namespace
        self._account = account
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
        try:
            self._client = httpx.Client(
                base_url=server,
                verify=ssl.create_default_context(cafile=str(account / "ca.crt")),
                # The name with which the API server remembers who wrote which fields.
                headers={"User-Agent": "serving-proxy"},
                timeout=request_s,
                trust_env=False,
            )
        except (OSError, ValueError) as error:
            raise InvalidError(f"{account / 'ca.crt'}: {error}, expected certificates of the API server") from error
        # The object as it was read or written last, with its resourceVersion.
        self._seen: Json | None = None

    def read(self) -> Held | None:
        """Return the lease; None if there is no object."""
        answer = self._request("GET", self._path)
        self._seen = None if answer.status_code == httpx.codes.NOT_FOUND else self._body(answer)
        return None if self._seen is None else self._held(self._seen)

    def take(self, wanted: Held) -> bool:
        """Take the lease as it was read last; return False if it has been renewed or taken since."""
        if self._seen is None:
            return self._write("POST", self._leases, self._object({"metadata": {"name": self._name}}, wanted))
        return self._write("PUT", self._path, self._object(self._seen, wanted))

    def renew(self, held: Held) -> bool:
        """Write the lease again, if this proxy still has it, whoever else has changed something about the object."""
        if self._seen is not None and self._write("PUT", self._path, self._object(self._seen, held)):
            return True
        found = self.read()
        if found is None or self._seen is None or (found.term, found.holder) != (held.term, held.holder):
            return False
        return self._write("PUT", self._path, self._object(self._seen, held))

    @property
    def _path(self) -> str:
        return f"{self._leases}/{quote(self._name, safe='')}"

    def _object(self, before: Json, held: Held) -> Json:
        """Return the object of a lease, with everything that others have added to it."""
        made = {**copy.deepcopy(before), **_KIND}
        metadata = made.setdefault("metadata", {})
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            _URL: held.url,
            _RENEWALS: str(held.renewals),
        }
        spec, now = made.setdefault("spec", {}), datetime.now(UTC).isoformat(timespec="microseconds")
        # For people; no proxy compares them with its own clock.
        spec["renewTime"] = now.replace("+00:00", "Z")
        if spec.get("leaseTransitions") != held.term:
            spec["acquireTime"] = spec["renewTime"]
        spec["holderIdentity"] = "" if held.released else held.holder
        spec["leaseDurationSeconds"] = math.ceil(held.lasts_s)
        spec["leaseTransitions"] = held.term
        return made

    def _held(self, found: Json) -> Held:
        try:
            spec, annotations = found.get("spec") or {}, found["metadata"].get("annotations") or {}
            holder = str(spec.get("holderIdentity") or "")
            return Held(
                int(spec.get("leaseTransitions") or 0),
                holder,
                str(annotations.get(_URL, "")),
                float(spec.get("leaseDurationSeconds") or 0),
                int(annotations.get(_RENEWALS, 0)),
                released=not holder,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnavailableError(f"{self}: {type(error).__name__} {error}, expected the Lease of a proxy") from error

    def _write(self, method: str, path: str, body: Json) -> bool:
        """Write the object; return False if it was changed, created or removed meanwhile."""
        answer = self._request(method, path, body)
        if answer.status_code in {httpx.codes.CONFLICT, httpx.codes.NOT_FOUND}:
            return False
        self._seen = self._body(answer)
        return True

    def _request(self, method: str, path: str, body: Json | None = None) -> httpx.Response:
        try:
            token = read_regular(self._account / "token", _MOST_BYTES, "token").decode("ascii").strip()
            answer = self._client.request(method, path, json=body, headers={"Authorization": f"Bearer {token}"})
        except (httpx.HTTPError, ProxyError, OSError, UnicodeDecodeError) as error:
            raise UnavailableError(
                f"{self}: {error or type(error).__name__}, expected the API server at {self._client.base_url}"
            ) from error
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise UnavailableError(f"{self}: {_said(answer)}, expected {_TOKEN}")
        if answer.status_code == httpx.codes.FORBIDDEN:
            raise UnavailableError(f"{self}: {_said(answer)}, expected {_RIGHTS}")
        if answer.is_error and answer.status_code not in {httpx.codes.CONFLICT, httpx.codes.NOT_FOUND}:
            raise UnavailableError(f"{self}: {_said(answer)}, expected a Lease that can be read and written")
        return answer

    def _body(self, answer: httpx.Response) -> Json:
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            raise UnavailableError(f"{self}: {answer.text[:200]!r}, expected a Lease")
        return found

    def __str__(self) -> str:
        return f"Lease {self._namespace}/{self._name}"


def lease_of_cluster(name: str, request_s: float) -> KubernetesLease:
    """Return a Lease in the namespace of this pod.

    Raises
    ------
    InvalidError
        This is not a pod, or it has no token of a service account.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise InvalidError(f"--lease kubernetes:{name}: no KUBERNETES_SERVICE_HOST, expected a pod of Kubernetes")
    try:
        namespace = read_regular(ACCOUNT / "namespace", _MOST_BYTES, "namespace").decode("ascii").strip()
    except (ProxyError, OSError) as error:
        raise InvalidError(
            f"--lease kubernetes:{name}: {error}; expected the token of a service account "
            "(automountServiceAccountToken)"
        ) from error
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return KubernetesLease(name, namespace, server, ACCOUNT, request_s)


def _said(answer: httpx.Response) -> str:
    """Return the message of the API server."""
    try:
        said = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        said = answer.reason_phrase
    return f"HTTP status {answer.status_code}, {said[:300]}"
