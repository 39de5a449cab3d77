# SPDX-License-Identifier: Apache-2.0
"""Test every option of `graph-tools cut` through the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.cli.units import asked_text, change_text
from graph_tools.passes.cut import cutting_pass_names
from graph_tools.passes.fuse import fusing_pass_names
from graph_tools.readers import read_model
from helpers.graph_tools import cut_models
from helpers.graph_tools.cut_models import build_sparse, contents, report_of, run
from helpers.graph_tools.stock_answers import answers

MANIFEST = "assets.extra/recprocessor/manifest.json"


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sparse(tmp_path_factory.mktemp("sparse") / "model")


def test_reports_are_printed_as_tables(sparse: Path, tmp_path: Path) -> None:
    before = contents(sparse)
    found = run("cut", sparse, tmp_path / "out", "--samples", 6)
    assert (found.code, found.err) == (0, "")
    assert contents(sparse) == before
    assert re.search(r"^bytes +\d.* kB +[+-]\d.* %$", found.out, re.M)
    assert re.search(r"^emb +deeprec +40 x 8 +20 +fp32 +\w+ +zero +1\.6 kB +\d+ B$", found.out, re.M)
    assert re.search(r"^convert_sparse_lookups +1 +\d+$", found.out, re.M)
    assert re.search(r"^tensors +\d+ .* +\S+", found.out, re.M)
    assert "verified 6 of 6 requests" in found.out
    assert "scores are equal bit for bit" in found.out
    assert found.out.splitlines()[-1].startswith(f"written to {tmp_path}/out in ")


def test_sizes_and_counts_are_those_of_inspect(tiny_model: Path, tmp_path: Path) -> None:
    (held,) = report_of("inspect", tiny_model)["models"]
    cut = report_of("cut", tiny_model, tmp_path / "out", "--samples", 32)
    assert (cut["source"]["bytes"], cut["source"]["nodes"]) == (held["bytes"], held["nodes"])
    assert cut["source"]["variables"] == len(held["variables"])
    (left,) = report_of("inspect", tmp_path / "out")["models"]
    assert (cut["target"]["bytes"], cut["target"]["variables"]) == (left["bytes"], len(left["variables"]))


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(200, 100, "-50.0 %"), (1000, 1100, "+10.0 %"), (100_000, 100_001, "0.0 %"), (5, 5, "0.0 %"), (0, 0, "")],
)
def test_changes_are_printed_with_their_sign(before: int, after: int, text: str) -> None:
    assert change_text(before, after) == text


def test_requests_that_do_not_count_are_explained() -> None:
    refused = [{"a": "x", "b": "x", "empty": False}, {"a": "x", "b": None, "empty": True}]
    found = {"signatures": [{"answered": 29}], "refused": refused, "requests": 32, "rows": 2000}
    assert asked_text(found) == "29 of 32 requests (2 without rows, 1 refused by both), 2,000 rows"
    assert asked_text(found | {"requests": 29, "refused": []}) == "29 of 29 requests, 2,000 rows"


def test_dry_run_forecasts_and_writes_nothing(sparse: Path, tmp_path: Path) -> None:
    before = contents(sparse.parent)
    for arguments in ([sparse], [sparse, tmp_path / "out"], [sparse, sparse]):
        found = run("cut", *arguments, "--dry-run", "--report", tmp_path / "report.json")
        assert (found.code, found.err) == (0, "")
        assert re.search(r"^table .* before +fp32 +bf16 +fp16 +int8 +int4$", found.out, re.M)
        assert re.search(r"^emb +40 x 8 +20 +1\.6 kB +(\d+ B +){4}\d+ B$", found.out, re.M)
        assert found.out.splitlines()[-1].startswith("nothing was written in ")
    assert contents(sparse.parent) == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert json.loads((tmp_path / "report.json").read_text())["dry_run"] is True


def test_no_verify(sparse: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    found = run("cut", sparse, tmp_path / "out", "--no-verify", "--report", report)
    assert found.code == 0
    assert "not verified: --no-verify was given" in found.out
    assert json.loads(report.read_text())["verification"] is None


def test_listed_passes_do_not_fuse() -> None:
    found = run("cut", "--list-passes")
    assert (found.code, found.err) == (0, "")
    names = re.findall(r"^(\w+) +\S", found.out, re.M)
    assert names == list(cutting_pass_names())
    assert not fusing_pass_names().keys() & set(names)


def test_signatures_and_outputs(multi_signature_model: Path, tmp_path: Path) -> None:
    chosen = ["--signature", "total", "--signature", "length", "--outputs", "sum", "--outputs", "bytes"]
    data = report_of("cut", multi_signature_model, tmp_path / "out", *chosen, "--samples", 2)
    assert {signature["name"] for signature in data["removed"]["signatures"]} == {"serving_default"}
    found = read_model(tmp_path / "out").signatures
    assert {name: list(signature.outputs) for name, signature in found.items()} == {
        "total": ["sum"],
        "length": ["bytes"],
    }


def test_checkpoint(tiny_model: Path, make_linear_model: Any, tmp_path: Path) -> None:
    other = make_linear_model(tmp_path / "other", scale=-2.0)
    report_of("cut", tiny_model, tmp_path / "out", "--checkpoint", other / "variables" / "variables", "--samples", 3)
    feeds = {"x": np.array([[1, 2, 3]], np.float32)}
    np.testing.assert_array_equal(answers(tmp_path / "out", feeds)["y"], answers(other, feeds)["y"])


def test_row_types_by_default_and_by_name(sparse: Path, tmp_path: Path) -> None:
    data = report_of("cut", sparse, tmp_path / "a", "--embedding-dtype", "int8", "--samples", 2)
    assert (data["tables"][0]["dtype"], data["lossy"], data["scores_judged"]) == ("int8", True, False)
    chosen = ["--embedding-dtype", "int8", "--tensor-type", "*=bf16", "--tensor-type", "em?=fp16"]
    data = report_of("cut", sparse, tmp_path / "b", *chosen, "--samples", 2)
    assert data["tables"][0]["dtype"] == "fp16"
    assert data["options"]["tensor_types"] == {"*": "bf16", "em?": "fp16"}
    assert json.loads((tmp_path / "b" / MANIFEST).read_text())["lossy"] is True


def test_a_lossy_cut_prints_the_lossy_tables(sparse: Path, tmp_path: Path) -> None:
    found = run("cut", sparse, tmp_path / "out", "--embedding-dtype", "int4", "--min-norm", 3, "--samples", 4)
    assert found.code == 0
    assert re.search(r"^lossy emb: \d+ rows were dropped that are not zero$", found.out, re.M)
    assert re.search(
        r"^compared 4 of 4 requests, .* largest difference \d\S+, not judged, since rows are", found.out, re.M
    )


def test_tolerance_judges_a_lossy_cut(sparse: Path, tmp_path: Path) -> None:
    lossy = ["--embedding-dtype", "int8", "--samples", 4, "--tolerance"]
    data = report_of("cut", sparse, tmp_path / "wide", *lossy, "0.5")
    assert data["scores_judged"] is True
    assert data["verification"]["tolerance"] == {"absolute": 0.5, "relative": 0.0}
    found = run("cut", sparse, tmp_path / "narrow", *lossy, "0,1e-9", "--json", "--report", tmp_path / "r.json")
    assert found.code == 1
    (line,) = found.err.splitlines()
    assert line.startswith(
        f"error: {tmp_path}/narrow: not written, since its outputs differ from those of {sparse}: signature"
    )
    written = json.loads((tmp_path / "r.json").read_text())
    assert written == json.loads(found.out)
    assert (written["verification"]["passed"], written["target"]) == (False, None)
    assert {path.name for path in tmp_path.iterdir()} == {"wide", "r.json"}


def test_absent_keys(tmp_path: Path) -> None:
    source = build_sparse(tmp_path / "source", random=True)
    found = run("cut", source, tmp_path / "out")
    assert found.code == 1
    assert "--absent-key emb=zero or emb=row:K" in found.err
    data = report_of("cut", source, tmp_path / "out", "--absent-key", "e*=row:30", "--samples", 4)
    assert data["tables"][0]["absent"]["kind"] == "row"
    rows = answers(tmp_path / "out", {"item": np.array([-7])})["rows"]
    np.testing.assert_array_equal(rows, cut_models.rows()[3:4])


def test_frequencies(tmp_path: Path) -> None:
    freqs = np.arange(len(cut_models.KEYS), dtype=np.int64)
    source = build_sparse(tmp_path / "source", freqs=freqs)
    data = report_of("cut", source, tmp_path / "out", "--min-frequency", 10, "--samples", 2)
    table = data["tables"][0]
    assert (table["below_frequency"], table["lossy_rows"]) == (10, 5)
    assert data["lossy"] is True


def test_names_in_the_graph_are_kept_on_request(tiny_model: Path, tmp_path: Path) -> None:
    report_of("cut", tiny_model, tmp_path / "out", "--keep-graph-names", "--samples", 2)
    assert any(name.endswith("PartitionedCall/MatMul") for name in read_model(tmp_path / "out").graph.nodes)


def test_recorded_requests(sparse: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", item=cut_models.KEYS)
    np.savez(tmp_path / "b.npz", item=cut_models.KEYS[:3])
    recorded = ["--requests", tmp_path / "a.npz", "--requests", tmp_path / "b.npz"]
    data = report_of("cut", sparse, tmp_path / "out", *recorded, "--samples", 0)
    assert (data["verification"]["requests"], data["verification"]["rows"]) == (2, 43)


def test_memory_limit(sparse: Path, tmp_path: Path) -> None:
    data = report_of("cut", sparse, tmp_path / "out", "--memory-limit", 0.5, "--samples", 2)
    assert data["options"]["memory_limit"] == 500_000_000


def test_frozen_graph(tmp_path: Path) -> None:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")
        tf.add(tf.matmul(x, tf.constant([[1.0], [2.0]])), 1.0, name="y")
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    data = report_of("cut", tmp_path / "graph.pb", tmp_path / "out", "--outputs", "y", "--samples", 3)
    assert data["source"]["kind"] == "GraphDef"
    assert answers(tmp_path / "out", {"x": np.array([[1, 1]], np.float32)})["y"].tolist() == [[4.0]]
