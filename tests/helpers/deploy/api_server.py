# SPDX-License-Identifier: Apache-2.0
"""An HTTPS server with the part of the API of Kubernetes that concerns Leases, as its documentation describes it.

https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions: each write changes the resourceVersion
of an object, and an update that names another one is refused with 409. Objects are compared with the API's schema.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import kubernetes_validate

from helpers.system.certificates import make_authority, make_certificate

Json = dict[str, Any]
NAMESPACE = "recprocessor"
_PATH = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/([a-z0-9-]+)/leases(?:/([a-z0-9-]+))?")


class ApiServer:
    """Leases of one namespace.

    Attributes
    ----------
    account : Path
        A folder as pods have it: `token`, `ca.crt` and `namespace`.
    leases : dict of str to dict
    rights : set of str
        Verbs that the service account may use.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.leases: dict[str, Json] = {}
        self.rights = {"get", "create", "update"}
        authority = make_authority(folder, "ca")
        certificate = make_certificate(folder, "api", authority)
        self.account = folder / "account"
        # Kubernetes has links there, and replaces the folder behind them.
        (self.account / "..data").mkdir(parents=True)
        for name in ("ca.crt", "namespace", "token"):
            (self.account / name).symlink_to(f"..data/{name}")
        (self.account / "ca.crt").write_bytes(authority.chain.read_bytes())
        (self.account / "namespace").write_text(NAMESPACE)
        self.set_token("a-first-token")
        self._version = 1000
        self._lock = threading.Lock()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.chain, certificate.key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"https://127.0.0.1:{self.port}"

    def set_token(self, token: str) -> None:
        """Replace the token, as Kubernetes does each hour."""
        self.token = token
        (self.account / "token").write_text(token)

    def edit(self, name: str, **annotations: str) -> None:
        """Change an object as `kubectl annotate` does."""
        with self._lock:
            self.leases[name]["metadata"].setdefault("annotations", {}).update(annotations)
            self._store(name, self.leases[name])

    def __enter__(self) -> ApiServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, token: str, body: bytes) -> tuple[int, Json]:
        """Return the status and the body of an answer."""
        found = _PATH.fullmatch(path)
        if found is None or found[1] != NAMESPACE:
            return _status(404, "the server could not find the requested resource")
        if token != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        verb = {"GET": "get", "POST": "create", "PUT": "update"}[method]
        if verb not in self.rights:
            return _status(403, f'leases.coordination.k8s.io is forbidden: User cannot {verb} resource "leases"')
        with self._lock:
            if method == "GET":
                lease = self.leases.get(found[2] or "")
                return _status(404, f'leases "{found[2]}" not found') if lease is None else (200, lease)
            return self._write(method, found[2], json.loads(body))

    def _write(self, method: str, name: str | None, given: Json) -> tuple[int, Json]:
        try:
            kubernetes_validate.validate(given, "1.30", strict=True)
            _check(given["spec"])
        except (kubernetes_validate.ValidationError, ValueError) as error:
            return _status(422, str(error))
        metadata = given["metadata"]
        name = name or metadata["name"]
        known, version = self.leases.get(name), metadata.get("resourceVersion")
        if method == "POST":
            if known is not None:
                return _status(409, f'leases "{name}" already exists')
            metadata["uid"] = str(uuid.uuid4())
        elif known is None:
            return _status(404, f'leases "{name}" not found')
        elif not version:
            return _status(422, "metadata.resourceVersion: must be specified for an update")
        elif version != known["metadata"]["resourceVersion"] or metadata.get("uid") != known["metadata"]["uid"]:
            return _status(409, "the object has been modified; please apply your changes to the latest version")
        return (201 if method == "POST" else 200), self._store(name, given)

    def _store(self, name: str, lease: Json) -> Json:
        self._version += 1
        lease["metadata"] |= {"namespace": NAMESPACE, "resourceVersion": str(self._version)}
        self.leases[name] = json.loads(json.dumps(lease))
        return self.leases[name]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                code, found = api.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
                data = json.dumps(found).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = _answer  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def _check(spec: Json) -> None:
    """Raise ValueError as the API's validation of Leases does, which its schema does not say."""
    if spec["leaseDurationSeconds"] <= 0:
        raise ValueError("spec.leaseDurationSeconds: must be greater than 0")
    if spec["leaseTransitions"] < 0:
        raise ValueError("spec.leaseTransitions: must be greater than or equal to 0")
    for name in ("acquireTime", "renewTime"):
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec[name]):
            raise ValueError(f"spec.{name}: expected a MicroTime")


def _status(code: int, message: str) -> tuple[int, Json]:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
