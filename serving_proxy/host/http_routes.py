# SPDX-License-Identifier: Apache-2.0
"""Map URLs to the library's methods: TensorFlow Serving's below /v1, the Open Inference Protocol's below /v2.

Raw requests of DeepRec Processor use the path of its clients, /api/predict/M, or / if only one model is served.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from serving_proxy.host.call import Operation

_INT64_MAX = 2**63 - 1
_CACHED = 4096
_LONGEST_CACHED = 200


class Page(Enum):
    """A page that the host serves itself."""

    METRICS = "metrics"
    ALIVE = "alive"
    READY = "ready"


class Verb(Enum):
    """An operation that is forwarded to the proxy."""

    LOAD = "load"
    UNLOAD = "unload"


@dataclass(frozen=True)
class Route:
    """The target of a request, and its model.

    Attributes
    ----------
    allowed : str
        The HTTP method.
    """

    target: Operation | Page | Verb
    allowed: str
    model: str | None = None
    version: int = 0
    label: str | None = None


class RouteError(Exception):
    """An unknown path; `protocol` is that of the path's clients, `allowed` the permitted HTTP method."""

    def __init__(self, status: int, message: str, protocol: str, allowed: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.protocol = protocol
        self.allowed = allowed


_MODEL = r"/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+)|/labels/(?P<label>[^/:]+))?"
_V1 = re.compile(rf"/v1{_MODEL}(?P<verb>:predict|:classify|:regress|:eas|/metadata)?")
_V2 = re.compile(
    r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+)|/labels/(?P<label>[^/]+))?"
    r"(?P<verb>/ready|/infer|/config|/stats)?"
)
_REPOSITORY = re.compile(r"/v2/repository/models/(?P<model>[^/]+)/(?P<verb>load|unload)")
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_EAS = re.compile(r"/api/predict/(?P<model>[^/]+)(?:/.*)?")

_V1_VERBS = {
    ":predict": (Operation("tfserving_json", "predict"), "POST"),
    ":classify": (Operation("tfserving_json", "classify"), "POST"),
    ":regress": (Operation("tfserving_json", "regress"), "POST"),
    ":eas": (Operation("eas", "predict"), "POST"),
    "/metadata": (Operation("tfserving_json", "metadata"), "GET"),
    None: (Operation("tfserving_json", "status"), "GET"),
}
_V2_VERBS = {
    "/infer": (Operation("kserve_json", "infer"), "POST"),
    "/ready": (Operation("kserve_json", "ready"), "GET"),
    "/config": (Operation("kserve_json", "config"), "GET"),
    "/stats": (Operation("kserve_json", "stats"), "GET"),
    None: (Operation("kserve_json", "metadata"), "GET"),
}
_FIXED = {
    "/": Route(Operation("eas", "predict"), "POST"),
    "/v2": Route(Operation("kserve_json", "server_metadata"), "GET"),
    "/v2/models/stats": Route(Operation("kserve_json", "stats"), "GET"),
    "/v2/repository/index": Route(Operation("kserve_json", "index"), "POST"),
    "/v2/health/live": Route(Operation("kserve_json", "live"), "GET"),
    "/v2/health/ready": Route(Operation("kserve_json", "server_ready"), "GET"),
    "/metrics": Route(Page.METRICS, "GET"),
    # The path that TensorFlow Serving uses.
    "/monitoring/prometheus/metrics": Route(Page.METRICS, "GET"),
    "/healthz": Route(Page.ALIVE, "GET"),
    "/readyz": Route(Page.READY, "GET"),
}


def find_route(path: bytes) -> Route:
    """Return the route of a path in its raw form.

    Raises
    ------
    RouteError
        With 400 for an invalid path or version, 404 for an unknown one.
    """
    # Long paths are not cached, because clients could fill the memory with ever new ones.
    return _cached(path) if len(path) <= _LONGEST_CACHED else _find(path)


def _find(raw: bytes) -> Route:
    path = raw.decode("latin-1")
    fixed = _FIXED.get(path) or _FIXED.get(path.rstrip("/"))
    if fixed is not None:
        return fixed
    if match := _V1.fullmatch(path):
        operation, allowed = _V1_VERBS[match["verb"]]
        label = None if match["label"] is None else _text(match["label"], operation)
        return Route(operation, allowed, _text(match["model"], operation), _version(match["version"], operation), label)
    if match := _V2.fullmatch(path):
        operation, allowed = _V2_VERBS[match["verb"]]
        number, label = match["version"], match["label"]
        if number is not None and not re.fullmatch(r"[-+]?[0-9]+", number):
            # As in the messages, where a version is a text: a text that is not a number is a label.
            number, label = None, number
        text = None if label is None else _text(label, operation)
        return Route(operation, allowed, _text(match["model"], operation), _version(number, operation), text)
    if match := _REPOSITORY.fullmatch(path):
        return Route(Verb(match["verb"]), "POST", _text(match["model"], Operation("kserve_json", match["verb"])))
    if match := _EAS.fullmatch(path):
        operation = Operation("eas", "predict")
        return Route(operation, "POST", _text(match["model"], operation))
    protocol = "eas" if path.startswith("/api/") else "tfserving_json"
    raise RouteError(404, f"path '{path[:200]}': not known, expected one of docs/hosts.md", protocol)


_cached = lru_cache(maxsize=_CACHED)(_find)


def _text(quoted: str, operation: Operation) -> str:
    try:
        # `unquote` would leave invalid escapes as they are.
        text = "\0" if _BAD_ESCAPE.search(quoted) else unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise RouteError(400, f"path: '{quoted[:200]}', expected percent-encoded UTF-8", operation.protocol)
    return text


def _version(text: str | None, operation: Operation) -> int:
    if text is None:
        return 0
    # `isdecimal` would accept digits of other scripts.
    number = int(text) if re.fullmatch(r"[0-9]{1,19}", text) else -1
    if not 0 <= number <= _INT64_MAX:
        raise RouteError(400, f"version '{text[:40]}': expected a number from 1 to {_INT64_MAX}", operation.protocol)
    if number == 0:
        # For the library, 0 means that no version is named.
        raise RouteError(404, "version 0: not served, expected 1 or more", operation.protocol)
    return number
