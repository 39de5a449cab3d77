# SPDX-License-Identifier: Apache-2.0
"""Test the command `delta` on golden segments and timelines."""

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

from helpers.graph_tools.cut_models import run
from helpers.graph_tools.delta_vectors import GOLDEN
from helpers.models.exports_in_time import export_at

ROOT = Path(__file__).resolve().parents[3]
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


def _valid(text: str) -> dict[str, object]:
    data: dict[str, object] = json.loads(text)
    name = str(data["schema"]).partition("/")[0]
    jsonschema.validate(data, json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text()))
    return data


@pytest.mark.parametrize("name", EXPECTED["segments"])
def test_segment_is_shown(name: str) -> None:
    expected, path = EXPECTED["segments"][name], GOLDEN / "segments" / f"{name}.delta"
    (segment,) = _valid(run("delta", "inspect", path, "--json").out)["segments"]
    assert (segment["chain"], segment["term"]) == (expected["chain"], expected["term"])
    assert [table["changed"] for table in segment["tables"]] == [len(table["changed"]) for table in expected["tables"]]
    found = run("delta", "inspect", path)
    assert (found.code, found.err) == (0, "")
    for entry in (*expected["tables"], *expected["variables"], *expected["streams"]):
        assert entry["name"][:20] in found.out


@pytest.mark.parametrize("name", EXPECTED["timelines"])
def test_timeline_is_shown_up_to_its_fault(name: str) -> None:
    expected, path = EXPECTED["timelines"][name], GOLDEN / "timelines" / name
    found = run("delta", "inspect", path, "--json")
    data = _valid(found.out)
    assert [segment["file"] for segment in data["segments"]] == expected["segments"]
    assert data["epoch"] == expected["epoch"]
    assert found.code == (2 if expected["fault"] else 0)
    text = run("delta", "inspect", path).out
    if expected["fault"]:
        for part in (expected["fault"]["file"], *expected["fault"]["mentions"]):
            assert part in data["fault"]
            assert part in text


def test_rows_that_servers_refuse_are_counted() -> None:
    path = GOLDEN / "segments" / "everything.delta"
    (segment,) = _valid(run("delta", "inspect", path, "--json").out)["segments"]
    counts = {entry["name"]: entry["not_finite"] for entry in (*segment["tables"], *segment["variables"])}
    # Golden numbers begin with -0, NaN, both infinities, and finite ones.
    assert (counts["user/embedding"], counts["category/embedding"], counts["dense/kernel"], counts["bias"]) == (
        2,
        0,
        3,
        0,
    )
    assert "not finite" in run("delta", "inspect", path).out
    assert "not finite" not in run("delta", "inspect", GOLDEN / "segments" / "row_numbers.delta").out


def test_damaged_segment_is_an_error() -> None:
    found = run("delta", "inspect", GOLDEN / "damaged" / "block_1.delta")
    assert (found.code, found.out) == (2, "")
    assert "block_1.delta: checksum" in found.err


def test_timeline_is_compacted(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "timelines" / "three_epochs", tmp_path / "timeline")
    data = _valid(run("delta", "compact", tmp_path / "timeline", "--to", 2, "--json").out)
    assert (data["segment"]["first_epoch"], data["segment"]["last_epoch"]) == (1, 2)
    assert len(data["replaced"]) == 2
    found = run("delta", "compact", tmp_path / "timeline", "--from", 1)
    assert found.code == 0
    assert "1 to 3" in found.out
    assert "2 segments replaced" in found.out
    found = run("delta", "compact", tmp_path / "timeline")
    assert found.code == 2
    assert "expected two or more to compact" in found.err


def test_timeline_is_truncated(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "timelines" / "three_epochs", tmp_path / "timeline")
    data = _valid(run("delta", "truncate", tmp_path / "timeline", "--to", 2, "--json").out)
    assert (data["epoch"], len(data["withdrawn"])) == (2, 1)
    found = run("delta", "truncate", tmp_path / "timeline", "--to", 1)
    assert (found.code, "ends with epoch 1" in found.out, "withdrawn-" in found.out) == (0, True, True)
    found = run("delta", "truncate", tmp_path / "timeline")
    assert (found.code, "no fault up to epoch 1, expected --to EPOCH" in found.err) == (2, True)


def test_missing_timeline_is_an_error(tmp_path: Path) -> None:
    for verb in ("inspect", "compact", "truncate"):
        found = run("delta", verb, tmp_path / "absent")
        assert found.code == 2
        assert "No such file" in found.err


def test_delta_is_made_and_applied(tmp_path: Path) -> None:
    old, new = (export_at("deeprec", tmp_path / str(moment) / "model", moment) for moment in (0, 1))
    data = _valid(run("delta", "make", old, new, tmp_path / "timeline", "--json").out)
    assert data["segment"]["first_epoch"] == 1
    assert [entry["name"] for entry in data["segment"]["tables"]] == ["dense/w", "item_emb"]
    found = run("delta", "make", new, new, tmp_path / "timeline", "--memory-limit", 0.1)
    assert found.code == 0
    assert "Segments" in found.out
    other = export_at("deeprec", tmp_path / "other" / "model", 2)
    found = run("delta", "make", other, new, tmp_path / "timeline")
    assert (found.code, "another lineage" in found.err) == (2, True)
    target = tmp_path / "cut"
    arguments = ("delta", "apply", old, tmp_path / "timeline", target, "--to", 1, "--accept-weak-proof")
    data = _valid(run(*arguments, "--json").out)
    assert data["target"]["path"] == str(target)
    assert json.loads((target / "assets.extra" / "recprocessor" / "lineage.json").read_text())["epoch"] == 1
    found = run(*arguments)
    assert (found.code, "already exists" in found.err) == (2, True)
    found = run("delta", "apply", old, tmp_path / "timeline", "--dry-run", "--to", 9)
    assert (found.code, "--to 9: epoch 2 of" in found.err) == (2, True)
