# SPDX-License-Identifier: Apache-2.0
"""Test whole cuts: what they keep, how they are judged, and what they write."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import cut
from graph_tools.errors import ConversionError, UnreadableError, UsageError, VerificationError
from graph_tools.options import CutOptions
from graph_tools.readers import read_model
from graph_tools.verbs import cut as cutting
from helpers.graph_tools import cut_models
from helpers.graph_tools.stock_answers import answers, assert_same_answers, requests_for
from helpers.models import special_models

MANIFEST = Path("assets.extra") / "recprocessor" / "manifest.json"
ASKED = np.concatenate([cut_models.KEYS[:20], np.array([1, -5, 2**40])])


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cut_models.build_sparse(tmp_path_factory.mktemp("sparse") / "model")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, string_model: Path) -> Path:
    return cut_models.build_served(string_model, tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="module")
def cut_served(served: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cut") / "model"
    before = cut_models.contents(served)
    report = cut(served, place)
    assert report.verification is not None
    assert report.verification.passed
    assert report.verification.bit_exact
    assert report.verification.signatures[0].recorded == 1
    assert report.verification.b.path == str(place)
    assert cut_models.contents(served) == before
    assert [path.name for path in place.parent.iterdir()] == ["model"]
    return place


def test_signatures_keep_names_order_and_dtypes(served: Path, cut_served: Path) -> None:
    before, after = read_model(served).signatures, read_model(cut_served).signatures
    assert list(before) == list(after)
    for name, signature in before.items():
        for kind in ("inputs", "outputs"):
            first, second = getattr(signature, kind), getattr(after[name], kind)
            assert list(first) == list(second)
            assert [(endpoint.dtype, endpoint.shape) for endpoint in first.values()] == [
                (endpoint.dtype, endpoint.shape) for endpoint in second.values()
            ]


def test_result_is_served_by_every_loader(served: Path, cut_served: Path) -> None:
    import tensorflow as tf

    import processor

    feeds: dict[str, Any] = {"item": np.array([b"pear", b"?", b""], object), "price": np.array([1, 2, 3], np.float32)}
    expected = answers(served, feeds)
    loaded = tf.saved_model.load(str(cut_served)).signatures["serving_default"]
    by_object = loaded(**{key: tf.constant(value) for key, value in feeds.items()})
    with processor.Model(cut_served) as model:
        by_library = model.run({"item": ["pear", "?", ""], "price": feeds["price"]})
    by_session = answers(cut_served, feeds)
    for key, value in expected.items():
        np.testing.assert_array_equal(by_session[key], value)
        np.testing.assert_array_equal(by_object[key].numpy(), value)
        np.testing.assert_array_equal(by_library[key], value)


def test_other_files_of_the_export_are_kept(served: Path, cut_served: Path) -> None:
    before, after = (cut_models.contents(folder / "assets.extra") for folder in (served, cut_served))
    assert before == {name: content for name, content in after.items() if not name.startswith("recprocessor")}


def test_export_that_may_only_be_read(served: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(served, tmp_path / "source"))
    folders = [source, *(path for path in source.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    cut(source, tmp_path / "out", samples=2)
    assert all(path.stat().st_mode & 0o700 == 0o700 for path in (tmp_path / "out").rglob("*") if path.is_dir())
    for folder in folders:
        folder.chmod(0o755)


def test_the_manifest_has_the_hash_of_every_file(cut_served: Path) -> None:
    manifest = json.loads((cut_served / MANIFEST).read_text())
    found = {
        path.relative_to(cut_served).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in cut_served.rglob("*")
        if path.is_file() and path != cut_served / MANIFEST
    }
    assert manifest["files"] == found
    assert {"saved_model.pb", "variables/variables.index", "assets.extra/tf_serving_warmup_requests"} <= set(found)
    assert manifest["lossy"] is False
    assert manifest["verification"]["passed"] is True


def test_cut_of_a_cut_writes_its_own_manifest(cut_served: Path, tmp_path: Path) -> None:
    report = cut(cut_served, tmp_path / "again", samples=4)
    manifest = json.loads((tmp_path / "again" / MANIFEST).read_text())
    assert manifest["source"]["path"] == str(cut_served)
    assert report.target is not None
    assert report.target.bytes == sum(path.stat().st_size for path in (tmp_path / "again").rglob("*") if path.is_file())


def test_tables_of_a_training_system(sparse: Path, tmp_path: Path) -> None:
    report = cut(sparse, tmp_path / "out", samples=14)
    (table,) = report.tables
    assert (table.family, table.zero_rows, table.dropped["equal_absent"]) == ("deeprec", 20, 20)
    assert report.verification is not None
    assert report.verification.bit_exact
    found = answers(tmp_path / "out", {"item": ASKED})["rows"]
    table_rows = dict(zip(cut_models.KEYS.tolist(), cut_models.rows(), strict=True))
    expected = [table_rows.get(int(key), np.zeros(cut_models.DIM, np.float32)) for key in ASKED]
    np.testing.assert_array_equal(found, np.array(expected))
    reasons = {tensor.name: tensor.reason for tensor in report.removed.tensors}
    assert "emb/Adagrad-values" in reasons


def test_dry_run_writes_nothing_and_forecasts_each_table(sparse: Path, tmp_path: Path) -> None:
    before = cut_models.contents(sparse.parent)
    report = cut(sparse, None, dry_run=True)
    assert cut_models.contents(sparse.parent) == before
    assert list(tmp_path.iterdir()) == []
    (table,) = report.tables
    assert set(table.forecast) == {"fp32", "bf16", "fp16", "int8", "int4"}
    assert table.forecast["fp32"] > table.forecast["bf16"] > table.forecast["int8"]
    assert report.target is not None
    assert report.target.path == "(not written)"
    written = cut(sparse, tmp_path / "out", samples=2)
    assert written.target is not None
    manifest = (tmp_path / "out" / MANIFEST).stat().st_size
    # The restore ops and the index of the checkpoint are what the forecast leaves out.
    assert report.target.bytes == pytest.approx(written.target.bytes - manifest, abs=4096)


def test_lossy_cut_is_reported_and_not_judged(sparse: Path, tmp_path: Path) -> None:
    report = cut(sparse, tmp_path / "out", options=CutOptions(embedding_dtype="int8"), samples=6)
    assert report.lossy
    found = report.verification
    assert found is not None
    assert report.scores_judged is False
    assert (found.passed, found.bit_exact, found.reasons) == (True, False, [])
    worst = max(output.max_abs_difference for output in found.outputs)
    assert 1e-5 < worst < 0.1
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert (manifest["lossy"], manifest["tables"][0]["lossy"]) == (True, True)
    assert manifest["verification"]["scores_judged"] is False
    assert max(output["max_abs_difference"] for output in manifest["verification"]["outputs"]) == worst


def test_lossy_cut_is_judged_by_a_tolerance(sparse: Path, tmp_path: Path) -> None:
    options = CutOptions(embedding_dtype="int8")
    report = cut(sparse, tmp_path / "wide", options=options, samples=6, tolerance="0.1,0.1")
    assert report.verification is not None
    assert report.scores_judged
    with pytest.raises(VerificationError, match=r"narrow: not written.*output 'rows': .* differ") as caught:
        cut(sparse, tmp_path / "narrow", options=options, samples=6, tolerance="1e-6,1e-6")
    assert [path.name for path in tmp_path.iterdir()] == ["wide"]
    assert caught.value.report["verification"]["passed"] is False
    assert caught.value.report["target"] is None


def test_rows_dropped_by_their_norm_make_a_cut_lossy(sparse: Path, tmp_path: Path) -> None:
    norms = np.linalg.norm(cut_models.rows(), axis=1)
    few = CutOptions(min_norm=float(np.sort(norms[norms > 0])[1:3].mean()))
    report = cut(sparse, tmp_path / "out", options=few, samples=4)
    assert report.lossy
    assert report.tables[0].lossy_rows == 2
    assert not cut(sparse, None, options=CutOptions(min_norm=1e-6), dry_run=True).lossy


def test_options_that_change_nothing_are_judged_as_lossless(sparse: Path, tmp_path: Path) -> None:
    options = CutOptions(embedding_dtype="int8", tensor_types={"emb": "fp32"})
    report = cut(sparse, tmp_path / "out", options=options, samples=2)
    assert not report.lossy
    assert report.verification is not None
    assert report.scores_judged


def test_differing_scores_leave_nothing_behind(sparse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(model: Any, options: CutOptions, *more: Any) -> Any:
        found = real(model, options, *more)
        (name,) = [variable for variable in model.variables if model.variables[variable].shape == (cut_models.DIM, 1)]
        from graph_tools.tensors import ArrayTensor

        model.variables[name] = ArrayTensor(np.zeros((cut_models.DIM, 1), np.float32))
        return found

    real = cutting.rewrite
    monkeypatch.setattr(cutting, "rewrite", spoil)
    with pytest.raises(
        VerificationError, match=r"not written, since its outputs differ from those of .*output 'score'"
    ) as caught:
        cut(sparse, tmp_path / "folder" / "out", samples=4)
    assert list(tmp_path.iterdir()) == []
    (output,) = [output for output in caught.value.report["verification"]["outputs"] if output["name"] == "score"]
    assert output["beyond"] > 0
    assert cut(sparse, tmp_path / "out", check=False).verification is None
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["verification"] is None


def test_signatures_and_outputs_are_chosen(multi_signature_model: Path, tmp_path: Path) -> None:
    report = cut(multi_signature_model, tmp_path / "one", signatures=["total"], samples=2)
    assert list(read_model(tmp_path / "one").signatures) == ["total"]
    assert {signature.name for signature in report.removed.signatures} == {"serving_default", "length"}
    cut(multi_signature_model, tmp_path / "two", outputs=["sum", "bytes"], samples=2)
    found = read_model(tmp_path / "two").signatures
    assert {name: list(signature.outputs) for name, signature in found.items()} == {
        "total": ["sum"],
        "length": ["bytes"],
    }
    assert list(found["total"].inputs) == ["a", "b"]
    with pytest.raises(UsageError, match=r"output 'nothing' is in no signature"):
        cut(multi_signature_model, tmp_path / "three", outputs=["nothing"])
    with pytest.raises(UsageError, match=r"no signature 'nothing', expected one of: length, serving_default, total"):
        cut(multi_signature_model, tmp_path / "three", signatures=["nothing"])
    assert not (tmp_path / "three").exists()


def test_weights_come_from_another_checkpoint(tiny_model: Path, make_linear_model: Any, tmp_path: Path) -> None:
    other = make_linear_model(tmp_path / "other", scale=3.0)
    cut(tiny_model, tmp_path / "out", checkpoint=other / "variables" / "variables", samples=4)
    assert_same_answers(other, tmp_path / "out", requests_for(other))


def test_names_inside_the_graph_are_kept_on_request(tiny_model: Path, tmp_path: Path) -> None:
    cut(tiny_model, tmp_path / "short", samples=2)
    cut(tiny_model, tmp_path / "long", options=CutOptions(keep_graph_names=True), samples=2)
    source = set(read_model(tiny_model).graph.nodes)
    short, long = (set(read_model(tmp_path / folder).graph.nodes) for folder in ("short", "long"))
    (product,) = [name for name in source if name.endswith("MatMul")]
    assert product in long
    assert product not in short


def test_absent_keys_get_the_requested_value(tmp_path: Path) -> None:
    source = cut_models.build_sparse(tmp_path / "source", random=True)
    with pytest.raises(ConversionError, match="--absent-key emb=zero or emb=row:K"):
        cut(source, tmp_path / "out")
    cut(source, tmp_path / "out", options=CutOptions(absent_key={"emb": "row:10"}), samples=14)
    found = answers(tmp_path / "out", {"item": np.array([10, 11, -1])})["rows"]
    np.testing.assert_array_equal(found, np.broadcast_to(cut_models.rows()[1], (3, cut_models.DIM)))
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest["options"]["absent_key"] == {"emb": "row:10"}
    assert manifest["tables"][0]["absent"]["kind"] == "row"


def test_assertions_that_only_the_source_has_are_not_a_difference(tmp_path: Path) -> None:
    source = special_models.build_counter(tmp_path / "counter")
    report = cut(source, tmp_path / "out", signatures=["serving_default"], samples=2, check=False)
    assert report.target is not None


def test_recorded_requests_are_asked(served: Path, sparse: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked.npz"
    np.savez(asked, item=cut_models.KEYS)
    report = cut(sparse, tmp_path / "out", requests=[asked], samples=0, accept_weak_proof=True)
    assert report.verification is not None
    assert (report.verification.requests, report.verification.rows) == (1, len(cut_models.KEYS))
    with pytest.raises(UnreadableError, match=r"nothing.npz: does not exist"):
        cut(sparse, tmp_path / "other", requests=[tmp_path / "nothing.npz"])
    with pytest.raises(VerificationError, match=r"none of 0 requests was answered"):
        cut(sparse, tmp_path / "other", samples=0)
    assert {path.name for path in tmp_path.iterdir()} == {"asked.npz", "out"}


def test_places_are_checked_before_anything_is_read(sparse: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    for place, message in ((sparse, "already exists"), (None, r"OUT: none given, expected a folder to write")):
        with pytest.raises(UsageError, match=message):
            cut(nothing, place)
    with pytest.raises(UsageError, match="is inside the source"):
        cut(sparse, sparse / "out")
    with pytest.raises(UnreadableError, match="nothing: does not exist"):
        cut(nothing, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_each_step_reports_its_progress(sparse: Path, tmp_path: Path) -> None:
    class Told:
        def __init__(self) -> None:
            self.steps: list[tuple[str, int | None, str]] = []
            self.done: list[int] = []

        def begin(self, text: str, total: int | None = None, unit: str = "") -> None:
            self.steps.append((text.split()[0], total, unit))
            self.done.append(0)

        def advance(self, count: int) -> None:
            self.done[-1] += count

    told = Told()
    cut(sparse, tmp_path / "out", samples=3, progress=told)
    assert [name for name, _, _ in told.steps] == [
        "Reading",
        "Rewriting",
        "Writing",
        "Running",
        "Running",
        "Identifying",
    ]
    by_name = dict(zip([step for step, _, _ in told.steps], told.done, strict=True))
    totals = {name: (total, unit) for name, total, unit in told.steps}
    assert totals["Writing"] == (by_name["Writing"], "bytes")
    assert totals["Running"] == (3, "requests")
    assert by_name["Running"] == 3
