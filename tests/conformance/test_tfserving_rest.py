# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Serving's REST API, as curl and HTTP libraries use it."""

from __future__ import annotations

import gzip
import json
import subprocess
import time
import zlib
from http.client import HTTPConnection

import httpx
import numpy as np
import pytest

from helpers.hosts.served_hosts import ServedHost
from helpers.models.model_builders import linear_score
from helpers.system.programs import require

ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
SCORES = linear_score(np.array(ROWS, np.float32)).tolist()


def test_predict_answers_rows(http: httpx.Client) -> None:
    answer = http.post("/v1/models/ranking:predict", json={"instances": ROWS})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"predictions": SCORES}


def test_answer_does_not_wait_for_an_acknowledgement(host: ServedHost) -> None:
    connection = HTTPConnection(host.rest, timeout=60)

    def seconds() -> float:
        start = time.monotonic()
        connection.request("POST", "/v1/models/ranking:predict", json.dumps({"instances": ROWS}))
        connection.getresponse().read()
        return time.monotonic() - start

    # Only after some requests does a client's kernel put off what it acknowledges, by 40 ms.
    for _ in range(40):
        seconds()
    # On a busy machine, many take longer.
    assert any(seconds() < 0.03 for _ in range(500))
    connection.close()


def test_predict_answers_columns(http: httpx.Client) -> None:
    answer = http.post("/v1/models/ranking:predict", json={"inputs": {"x": ROWS}, "signature_name": "serving_default"})
    assert answer.json() == {"outputs": SCORES}


@pytest.mark.parametrize(("place", "scale"), [("/versions/2", 2), ("/labels/canary", 2), ("/labels/stable", 1)])
def test_path_selects_the_version(http: httpx.Client, place: str, scale: int) -> None:
    answer = http.post(f"/v1/models/ranking{place}:predict", json={"instances": ROWS})
    assert answer.json() == {"predictions": (scale * np.array(SCORES)).tolist()}


def test_predict_accepts_strings(http: httpx.Client) -> None:
    rows = [{"item": {"b64": "YQ=="}, "price": 1.0}, {"item": "b", "price": 2.0}]
    answer = http.post("/v1/models/text:predict", json={"instances": rows})
    assert answer.status_code == 200, answer.text
    assert [set(row) for row in answer.json()["predictions"]] == [{"score", "id", "label"}] * 2


def test_classify_and_regress_return_results(http: httpx.Client) -> None:
    answer = http.post("/v1/models/examples:classify", json={"examples": [{"x": 0.25}]})
    assert answer.json() == {"results": [[["no", 0.75], ["yes", 0.25]]]}
    body = {"signature_name": "regress", "examples": [{"x": 0.25}]}
    assert http.post("/v1/models/examples:regress", json=body).json() == {"results": [0.5]}


def test_status_lists_available_versions(http: httpx.Client) -> None:
    found = http.get("/v1/models/ranking").json()["model_version_status"]
    assert [(version["version"], version["state"]) for version in found] == [("2", "AVAILABLE"), ("1", "AVAILABLE")]
    assert len(http.get("/v1/models/ranking/versions/2").json()["model_version_status"]) == 1


def test_metadata_contains_the_signature(http: httpx.Client) -> None:
    metadata = http.get("/v1/models/ranking/metadata").json()
    assert metadata["model_spec"]["name"] == "ranking"
    assert "x" in json.dumps(metadata["metadata"]["signature_def"])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/models/absent:predict", {"instances": ROWS}, 404),
        ("/v1/models/ranking/versions/9:predict", {"instances": ROWS}, 404),
        ("/v1/models/ranking/versions/0:predict", {"instances": ROWS}, 404),
        ("/v1/models/ranking/versions/x:predict", {"instances": ROWS}, 400),
        ("/v1/models/ranking/versions/99999999999999999999:predict", {"instances": ROWS}, 400),
        ("/v1/models/ranking/labels/absent:predict", {"instances": ROWS}, 400),
        ("/v1/models/ranking:predict", {"instances": ROWS, "signature_name": "absent"}, 400),
        ("/v1/models/ranking:predict", {"instances": [["a"]]}, 400),
        ("/v1/models/ranking:predict", {"instances": ROWS, "inputs": ROWS}, 400),
        ("/v1/models/ranking:predict", {}, 400),
        ("/v1/models/ranking:predict", [], 400),
        ("/v1/models/ranking:nothing", {"instances": ROWS}, 404),
        ("/v1/nothing", {}, 404),
        ("/v1/models/%ff:predict", {}, 400),
        ("/v1/models/a%00b:predict", {}, 400),
    ],
)
def test_invalid_requests_are_refused(http: httpx.Client, path: str, body: object, status: int) -> None:
    answer = http.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]


def test_wrong_http_method_is_refused_with_the_allowed_one(http: httpx.Client) -> None:
    answer = http.get("/v1/models/ranking:predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_bodies_are_inflated(http: httpx.Client, encoding: str, compress) -> None:
    body = compress(json.dumps({"instances": ROWS}).encode())
    answer = http.post("/v1/models/ranking:predict", content=body, headers={"content-encoding": encoding})
    assert answer.json() == {"predictions": SCORES}


def test_unknown_encodings_are_refused(http: httpx.Client) -> None:
    answer = http.post("/v1/models/ranking:predict", content=b"{}", headers={"content-encoding": "br"})
    assert answer.status_code == 415


def test_curl_gets_predictions(host: ServedHost) -> None:
    require("curl")
    command = ["curl", "--silent", "--fail", "-d", json.dumps({"instances": ROWS})]
    answer = subprocess.run(
        [*command, f"http://{host.rest}/v1/models/ranking:predict"], capture_output=True, check=True, timeout=120
    )
    assert json.loads(answer.stdout) == {"predictions": SCORES}
