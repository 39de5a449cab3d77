# SPDX-License-Identifier: Apache-2.0
"""Test tables of fused models: in the artifact or in a store, in the manifest, and in generated requests."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from graph_tools import fuse, verify
from graph_tools.errors import UnreadableError
from graph_tools.readers import read_model
from graph_tools.verification.find_domain import find_domain
from helpers.models.verify_models import WORDS

ROWS = np.random.default_rng(3).normal(size=(len(WORDS) + 1, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("lookup") / "model")


def build(path: Path, *, words: Sequence[str] = WORDS, change: float = 0.0) -> Path:
    """item string [batch], id int64 [batch] -> score [batch, 4]: a row of a vocabulary's table, and one by number."""
    import tensorflow as tf

    module = tf.Module()
    module.rows = tf.Variable(ROWS, name="rows")
    module.numbered = tf.Variable(ROWS[:5] + np.float32(change), name="numbered")
    pairs = tf.lookup.KeyValueTensorInitializer(list(words), tf.range(len(words), dtype=tf.int64))
    module.table = tf.lookup.StaticHashTable(pairs, len(words))

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="item"), tf.TensorSpec([None], tf.int64, name="id")]
    )
    def serve(item: object, id: object) -> dict[str, object]:
        found = [tf.gather(module.rows, module.table.lookup(item)), tf.gather(module.numbered, id)]
        return {"score": tf.tanh(tf.concat(found, 1))}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def test_files_are_named_by_their_content_and_described(source: Path, tmp_path: Path) -> None:
    report = fuse(source, tmp_path / "out", samples=13)
    assert [pass_.applied for pass_ in report.fused if pass_.name == "fuse_embedding_groups"] == [1]
    said = json.loads((tmp_path / "out/assets.extra/recprocessor/manifest.json").read_text())
    kinds = {table_file["index_kind"]: table_file for table_file in said["table_files"]}
    assert set(kinds) == {"string", "direct"}
    for table_file in said["table_files"]:
        file = tmp_path / "out" / table_file["file"]
        assert (
            hashlib.sha256(file.read_bytes()).hexdigest()
            == table_file["sha256"]
            == file.stem
            == said["files"][table_file["file"]]
        )
        assert (table_file["bytes"], stat.S_IMODE(file.stat().st_mode)) == (file.stat().st_size, 0o444)
    assert (kinds["direct"]["rows"], kinds["direct"]["dim"], kinds["direct"]["absent_key"]) == (5, 2, "error")
    assert (kinds["string"]["absent_key"], kinds["string"]["default_rows"]) == ("default", 1)
    assert [table_file.shared for table_file in report.table_files] == [False, False]


def test_equal_tables_of_two_models_are_one_file_in_a_store(source: Path, tmp_path: Path) -> None:
    other = build(tmp_path / "other", change=1.0)
    first = fuse(source, tmp_path / "a", samples=3, table_store=tmp_path / "store")
    second = fuse(other, tmp_path / "b", samples=3, table_store=tmp_path / "store")
    assert all(table_file.shared for table_file in [*first.table_files, *second.table_files])
    files = [
        {table_file.sha256: (tmp_path / folder / table_file.file).stat().st_ino for table_file in report.table_files}
        for folder, report in (("a", first), ("b", second))
    ]
    (equal,) = set(files[0]) & set(files[1])
    assert files[0][equal] == files[1][equal] == (tmp_path / "store" / f"{equal}.emb").stat().st_ino
    assert len(list((tmp_path / "store").iterdir())) == 3


def test_a_fused_model_is_asked_for_keys_of_its_tables(source: Path, tmp_path: Path) -> None:
    fuse(source, tmp_path / "out", samples=3)
    model = read_model(tmp_path / "out")
    inputs = model.signatures["serving_default"].inputs
    item, number = (find_domain(model, inputs[key].tensor) for key in ("item", "id"))
    assert {word.decode() for known in item.known for word in known} == set(WORDS)
    assert number.rows == 5


def test_fused_models_are_compared(source: Path, tmp_path: Path) -> None:
    fuse(source, tmp_path / "a", samples=3)
    same = verify(tmp_path / "a", tmp_path / "a", samples=13)
    assert same.bit_exact
    # The same words in another order: only their rows differ, and those of no other word.
    fuse(build(tmp_path / "other", words=(WORDS[1], WORDS[0], *WORDS[2:])), tmp_path / "b", samples=3)
    changed = verify(tmp_path / "a", tmp_path / "b", samples=13)
    assert not changed.passed
    assert changed.outputs[0].worst is not None
    assert not verify(tmp_path / "a", _with_other_number(tmp_path), samples=13).passed


def _with_other_number(folder: Path) -> Path:
    fuse(build(folder / "third", change=0.5), folder / "c", samples=3)
    return folder / "c"


def test_tables_are_not_held_in_memory(source: Path, tmp_path: Path) -> None:
    fuse(source, tmp_path / "out", samples=3)
    size = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.emb"))
    rest = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()) - size
    found = verify(tmp_path / "out", tmp_path / "out", samples=6, memory_limit=rest + 1)
    assert found.passed, found.reasons
    assert (found.a.how, found.tables) == ("session", [])
    # Of a source that is larger than the limit, tables are read as streams; those of the fused one are mapped.
    mixed = verify(source, tmp_path / "out", samples=6, memory_limit=64)
    assert mixed.passed, mixed.reasons
    assert (mixed.a.how, mixed.b.how) == ("TensorFlow, lookups in NumPy", "session")


def test_a_missing_table_is_named(source: Path, tmp_path: Path) -> None:
    report = fuse(source, tmp_path / "out", samples=3)
    gone = tmp_path / "out" / report.table_files[0].file
    gone.unlink()
    with pytest.raises(UnreadableError, match=rf"{gone.name}: does not exist, expected the asset"):
        verify(source, tmp_path / "out", samples=3)
