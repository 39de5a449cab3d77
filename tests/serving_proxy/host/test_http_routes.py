# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from serving_proxy.host.call import Operation
from serving_proxy.host.http_routes import Page, RouteError, find_route


@pytest.mark.parametrize(
    ("path", "target", "allowed", "model", "version", "label"),
    [
        (b"/v1/models/m:predict", ("tfserving_json", "predict"), "POST", "m", 0, None),
        (b"/v1/models/m/versions/7:classify", ("tfserving_json", "classify"), "POST", "m", 7, None),
        (b"/v1/models/m/labels/stable:regress", ("tfserving_json", "regress"), "POST", "m", 0, "stable"),
        (b"/v1/models/m/versions/7:eas", ("eas", "predict"), "POST", "m", 7, None),
        (b"/v1/models/m", ("tfserving_json", "status"), "GET", "m", 0, None),
        (b"/v1/models/m/labels/stable/metadata", ("tfserving_json", "metadata"), "GET", "m", 0, "stable"),
        (b"/v1/models/a%20b%2Fc:predict", ("tfserving_json", "predict"), "POST", "a b/c", 0, None),
        (b"/v2", ("kserve_json", "server_metadata"), "GET", None, 0, None),
        (b"/v2/", ("kserve_json", "server_metadata"), "GET", None, 0, None),
        (b"/v2/health/live", ("kserve_json", "live"), "GET", None, 0, None),
        (b"/v2/health/ready", ("kserve_json", "server_ready"), "GET", None, 0, None),
        (b"/v2/models/m", ("kserve_json", "metadata"), "GET", "m", 0, None),
        (b"/v2/models/m/versions/9223372036854775807/ready", ("kserve_json", "ready"), "GET", "m", 2**63 - 1, None),
        (b"/v2/models/m/infer", ("kserve_json", "infer"), "POST", "m", 0, None),
        (b"/", ("eas", "predict"), "POST", None, 0, None),
        (b"/api/predict/m", ("eas", "predict"), "POST", "m", 0, None),
        (b"/api/predict/m/more", ("eas", "predict"), "POST", "m", 0, None),
        (b"/metrics", Page.METRICS, "GET", None, 0, None),
        (b"/monitoring/prometheus/metrics", Page.METRICS, "GET", None, 0, None),
        (b"/healthz", Page.ALIVE, "GET", None, 0, None),
        (b"/readyz", Page.READY, "GET", None, 0, None),
    ],
)
def test_route(path: bytes, target, allowed: str, model: str | None, version: int, label: str | None) -> None:
    route = find_route(path)
    assert route.target == (target if isinstance(target, Page) else Operation(*target))
    assert (route.allowed, route.model, route.version, route.label) == (allowed, model, version, label)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"", 404),
        (b"/v1", 404),
        (b"/v1/models/", 404),
        (b"/v1/models/:predict", 404),
        (b"/v1/models/m:PREDICT", 404),
        (b"/v1/models/m/versions/1/labels/a:predict", 404),
        (b"/v1/models/m:predict/", 404),
        (b"/v2/models/m/infer/x", 404),
        (b"/api/predict/", 404),
        (b"/v1/models/m/versions/0:predict", 404),
        (b"/v1/models/m/versions/-1:predict", 400),
        (b"/v1/models/m/versions/9223372036854775808:predict", 400),
        ("/v1/models/m/versions/\u0661:predict".encode(), 400),
        (b"/v1/models/%ff:predict", 400),
        (b"/v2/models/a%00b", 400),
    ],
)
def test_unknown_path_has_no_route(path: bytes, status: int) -> None:
    with pytest.raises(RouteError) as caught:
        find_route(path)
    assert caught.value.status == status
    assert len(str(caught.value)) < 400


def test_long_path_is_not_cached() -> None:
    from serving_proxy.host import http_routes

    before = http_routes._cached.cache_info().currsize
    find_route(b"/v1/models/" + b"m" * 300 + b":predict")
    assert http_routes._cached.cache_info().currsize == before
