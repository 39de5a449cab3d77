# SPDX-License-Identifier: Apache-2.0
"""Native lookups return what the training system returns, for each layout, row type, kind of key and of absent key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.model.tables import SparseTable
from graph_tools.options import CutOptions
from graph_tools.passes.cut.convert_sparse_lookups import ConvertSparseLookups
from graph_tools.tables.absent_keys import apply_absent_keys
from graph_tools.writer import write_saved_model
from helpers.models.sparse_table_models import Served, checkpoint_bytes, lookup_model, make_table, reference

DIM = 6
INTEGERS = {"int64": np.int64, "int32": np.int32, "uint64": np.uint64}


def absent_rows(kind: str) -> np.ndarray | None:
    random = np.random.default_rng(9)
    return {
        "zero": None,
        "row": random.normal(size=(1, DIM)).astype(np.float32),
        "modulo": random.normal(size=(7, DIM)).astype(np.float32),
    }[kind]


def make_keys(dtype: str, layout: str, count: int, random: np.random.Generator) -> np.ndarray:
    """Keys for which a layout is the smallest: without gaps, with many, or from anywhere."""
    if dtype == "string":
        return np.array([b"", *(b"key \xc5\x82 %d" % index for index in range(1, count))], object)
    if layout != "hashed":
        low = 0 if dtype == "uint64" else -10
        return (random.permutation(count + 20)[:count] + low).astype(INTEGERS[dtype])
    bounds = np.iinfo(INTEGERS[dtype])
    keys = random.integers(bounds.min, bounds.max, count, INTEGERS[dtype], endpoint=True)
    keys[:4] = [bounds.min, bounds.max, 0, 1]
    return np.unique(keys)


def make_rows(count: int, layout: str, random: np.random.Generator) -> np.ndarray:
    rows = random.normal(size=(count, DIM)).astype(np.float32)
    if layout != "direct":
        # Zeros of either sign, and rows that are equal.
        rows[random.random(count) < (0.2 if layout == "remap" else 0.5)] = 0
        rows[random.random(count) < 0.1] *= np.float32(-0.0)
    if layout == "remap":
        rows = rows[random.integers(0, count // 8, count)]
    return rows


def questions(table: SparseTable) -> list[np.ndarray]:
    """Keys that are there, keys that are not, the extremes, none at all, and one alone."""
    held = np.concatenate([part.keys.read() for part in table.parts])
    if held.dtype == object:
        strange = np.array([b"absent", b"KEY", b"\xff\x00x"], object)
    else:
        bounds = np.iinfo(held.dtype)
        strange = np.array([bounds.min, bounds.max, bounds.max - 5, 3, 11, bounds.min // 2], held.dtype)
        strange = np.concatenate([strange, held[:30] + held.dtype.type(13)])
    mixed = np.concatenate([held, strange])
    return [mixed, mixed[: len(mixed) // 6 * 6].reshape(-1, 2, 3), held[:0], strange[:1].reshape(())]


def assert_equal_rows(found: np.ndarray, expected: np.ndarray, row_type: str) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if row_type == "fp32":
        np.testing.assert_array_equal(found, expected)
        return
    if not expected.size:
        return
    step = {"bf16": 2.0**-8, "fp16": 2.0**-11, "int8": 1 / 255, "int4": 1 / 15}[row_type]
    spread = np.abs(expected).max(axis=-1, keepdims=True) * (2 if row_type.startswith("int") else 1)
    bound = spread * step * (0.51 if row_type == "int8" else 1.0) + 1e-7
    assert (np.abs(found - expected) <= bound).all()
    # Zeros stay zeros, whatever the row type.
    assert not found[~expected.any(axis=-1)].any()


LAYOUTS = [
    ("direct", "int64"), ("direct", "int32"), ("direct", "uint64"), ("remap", "int64"), ("remap", "uint64"),
    ("hashed", "int64"), ("hashed", "int32"), ("hashed", "uint64"), ("hashed", "string"),
]  # fmt: skip


@pytest.mark.parametrize("row_type", ["fp32", "bf16", "fp16", "int8", "int4"])
@pytest.mark.parametrize(
    ("layout", "key_dtype", "absent"),
    # A string has no remainder.
    [
        (*layout, kind)
        for layout in LAYOUTS
        for kind in ("zero", "row", "modulo")
        if (layout[1], kind) != ("string", "modulo")
    ],
)
def test_lookup_gives_what_the_training_system_gives(
    tmp_path: Path, layout: str, key_dtype: str, absent: str, row_type: str
) -> None:
    random = np.random.default_rng([len(layout), len(key_dtype), len(absent)])
    keys = make_keys(key_dtype, layout, 800, random)
    table = make_table(keys, make_rows(len(keys), layout, random), absent_rows(absent), parts=3)
    model = lookup_model(table)
    convert = ConvertSparseLookups(CutOptions(embedding_dtype=row_type))
    result = convert.apply(model)

    assert result.applied == 1
    (record,) = convert.records
    assert record.layout == layout
    assert record.dtype == row_type
    assert record.absent.kind == absent
    assert model.table_records == [record]
    assert not model.sparse_tables
    assert not model.graph.of("SparseLookup")
    serve = Served(model, tmp_path / "out")
    for asked in questions(table):
        assert_equal_rows(serve(keys=asked), reference(table, asked), row_type)
    assert abs(checkpoint_bytes(serve.path) - record.bytes) < 2000
    assert ConvertSparseLookups().apply(model).applied == 0


@pytest.mark.parametrize("absent", ["zero", "row", "modulo"])
@pytest.mark.parametrize("layout", ["direct", "remap", "hashed"])
def test_second_input_is_given_to_absent_keys(tmp_path: Path, layout: str, absent: str) -> None:
    random = np.random.default_rng(4)
    count = 800
    keys = make_keys("int64", layout, count, random)
    if layout == "direct":
        keys = random.permutation(count) - 10
    table = make_table(keys, make_rows(len(keys), layout, random), absent_rows(absent))
    model = lookup_model(table, default="fed", lookups=2)
    convert = ConvertSparseLookups()
    convert.apply(model)

    (record,) = convert.records
    assert record.layout == layout
    assert record.absent.lookups_with_their_own == 1
    assert record.dropped == {}
    serve = Served(model, tmp_path / "out")
    for asked in questions(table):
        same = random.normal(size=DIM).astype(np.float32)
        each = random.normal(size=(*asked.shape, DIM)).astype(np.float32)
        for default in (same, each):
            found = serve(keys=asked, default=default)
            np.testing.assert_array_equal(found, reference(table, asked, default))
        # The lookup beside it keeps the table's own value.
        np.testing.assert_array_equal(serve(output="rows_1", keys=asked, default=same), reference(table, asked))


@pytest.mark.parametrize("default", [0.0, [0.0] * DIM, [[0.25] * DIM]])
def test_constant_second_input_becomes_the_absent_value(tmp_path: Path, default: object) -> None:
    random = np.random.default_rng(5)
    keys = make_keys("int64", "hashed", 200, random)
    rows = random.normal(size=(len(keys), DIM)).astype(np.float32)
    given = np.broadcast_to(np.asarray(default, np.float32), (1, DIM))
    rows[::2] = given
    table = make_table(keys, rows, absent_rows("modulo"))
    model = lookup_model(table, default=np.asarray(default, np.float32))
    convert = ConvertSparseLookups()
    convert.apply(model)
    (record,) = convert.records
    assert record.dropped == {"equal_absent": (len(keys) + 1) // 2}
    assert record.absent.kind == ("row" if given.any() else "zero")
    serve = Served(model, tmp_path / "out")
    for asked in questions(table):
        np.testing.assert_array_equal(serve(keys=asked), reference(table, asked, given[0]))


def test_ninety_three_percent_zero_rows_shrink_by_ninety(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    keys = np.unique(random.integers(0, 1 << 62, 20000))
    rows = random.normal(size=(len(keys), 16)).astype(np.float32)
    rows[random.random(len(keys)) < 0.935] = 0
    table = make_table(keys, rows, np.zeros((4096, 16), np.float32), parts=4)
    model = lookup_model(table)
    ConvertSparseLookups().apply(model)
    serve = Served(model, tmp_path / "out")
    asked = np.concatenate([keys, keys[:100] + 1])
    np.testing.assert_array_equal(serve(keys=asked), reference(table, asked))
    assert checkpoint_bytes(serve.path) <= 0.1 * table.source_bytes


def test_zero_rows_stay_as_keys_of_one_row_where_absent_keys_are_given_another(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    keys = np.unique(random.integers(-(1 << 62), 1 << 62, 20000))
    rows = random.normal(size=(len(keys), 16)).astype(np.float32)
    rows[random.random(len(keys)) < 0.93] = 0
    default = random.normal(size=(64, 16)).astype(np.float32)
    # Some rows are still what they began with.
    rows[::100] = default[keys[::100] % 64]
    table = make_table(keys, rows, default)
    model = lookup_model(table)
    convert = ConvertSparseLookups()
    convert.apply(model)
    (record,) = convert.records
    assert record.share == "zero"
    assert record.dropped == {"equal_absent": len(keys[::100])}
    assert record.zero_rows == int((~rows.any(axis=1)).sum())
    assert record.kept_keys == len(keys) - len(keys[::100])
    assert any("zero rows stay" in reason for reason in record.reasons)
    serve = Served(model, tmp_path / "out")
    asked = np.concatenate([keys, keys[:100] + 1])
    np.testing.assert_array_equal(serve(keys=asked), reference(table, asked))
    # Keys are eight bytes of 72, rows a fifteenth of the rest.
    assert checkpoint_bytes(serve.path) < 0.2 * table.source_bytes


def test_duplicate_rows_are_stored_once(tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    keys = np.unique(random.integers(-(1 << 62), 1 << 62, 3000))
    rows = random.normal(size=(40, 16)).astype(np.float32)[random.integers(0, 40, len(keys))]
    table = make_table(keys, rows, absent_rows("zero"), parts=2)
    model = lookup_model(table)
    convert = ConvertSparseLookups()
    convert.apply(model)
    (record,) = convert.records
    assert (record.layout, record.share, record.stored_rows) == ("hashed", "equal", 40)
    assert record.duplicates == len(keys) - 40
    serve = Served(model, tmp_path / "out")
    asked = np.concatenate([keys, keys[:100] + 1])
    np.testing.assert_array_equal(serve(keys=asked), reference(table, asked))


@pytest.mark.parametrize("absent", ["zero", "modulo"])
@pytest.mark.parametrize("strings", [False, True])
def test_ignored_keys_are_not_served(tmp_path: Path, absent: str, strings: bool) -> None:
    random = np.random.default_rng(10)
    keys = make_keys("string" if strings else "int64", "hashed", 300, random)
    rows = random.normal(size=(len(keys), DIM)).astype(np.float32)
    unknown = np.array([b"not there"], object) if strings else np.array([12345, 5, 5])
    ignored = np.concatenate([keys[5:25], unknown])
    table = make_table(keys, rows, absent_rows("row" if strings and absent == "modulo" else absent), ignored=ignored)
    model = lookup_model(table)
    convert = ConvertSparseLookups()
    convert.apply(model)
    assert convert.records[0].dropped["ignored"] == 20
    asked = np.concatenate([keys, ignored])
    np.testing.assert_array_equal(Served(model, tmp_path / "out")(keys=asked), reference(table, asked))


@pytest.mark.parametrize("absent", ["zero", "row", "modulo"])
def test_table_without_any_row_left_gives_absent_values(tmp_path: Path, absent: str) -> None:
    keys = np.array([3, -7, 1 << 40])
    rows = np.zeros((3, DIM), np.float32)
    default = absent_rows(absent)
    if default is not None:
        rows = default[keys % len(default)]
    table = make_table(keys, rows, default)
    for name, feed in (("plain", None), ("fed", "fed")):
        model = lookup_model(table, default=feed)
        convert = ConvertSparseLookups()
        convert.apply(model)
        serve = Served(model, tmp_path / name)
        asked = np.array([[3, 4], [-7, 5]])
        if feed is None:
            assert convert.records[0].layout == "none"
            np.testing.assert_array_equal(serve(keys=asked), reference(table, asked))
        else:
            given = np.arange(DIM, dtype=np.float32)
            np.testing.assert_array_equal(serve(keys=asked, default=given), reference(table, asked, given))


def test_string_table_without_any_row_left(tmp_path: Path) -> None:
    table = make_table(np.array([b"a", b"b"], object), np.zeros((2, DIM), np.float32))
    model = lookup_model(table)
    ConvertSparseLookups().apply(model)
    found = Served(model, tmp_path / "out")(keys=np.array([[b"a"], [b"c"]], object))
    np.testing.assert_array_equal(found, np.zeros((2, 1, DIM)))


def test_keys_that_the_graph_never_makes_are_dropped(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    keys = random.permutation(1000)
    table = make_table(keys, random.normal(size=(1000, DIM)).astype(np.float32))
    model = lookup_model(table, modulus=100)
    convert = ConvertSparseLookups()
    convert.apply(model)
    assert convert.records[0].dropped == {"dead": 900}
    assert convert.records[0].layout == "direct"
    asked = np.arange(-50, 300)
    found = Served(model, tmp_path / "out")(keys=asked)
    np.testing.assert_array_equal(found, reference(table, asked % 100))


@pytest.mark.parametrize("absent", ["zero", "row"])
def test_small_and_rare_rows_are_dropped_with_the_options(tmp_path: Path, absent: str) -> None:
    from graph_tools.tensors import ArrayTensor

    random = np.random.default_rng(12)
    keys = make_keys("int64", "hashed", 500, random)
    rows = random.normal(size=(len(keys), DIM)).astype(np.float32)
    rows[:50] *= np.float32(1e-4)
    seen = random.integers(0, 20, len(keys)).astype(np.uint32)
    table = make_table(keys, rows, absent_rows(absent), frequencies=ArrayTensor(seen))
    convert = ConvertSparseLookups(CutOptions(min_norm=0.01, min_frequency=5))
    model = lookup_model(table)
    convert.apply(model)
    (record,) = convert.records
    small, rare = np.linalg.norm(rows, axis=1) < 0.01, seen < 5
    assert record.below_norm == small.sum()
    assert record.below_frequency == rare.sum()
    assert record.lossy_rows == (small | rare).sum()
    expected = reference(table, keys)
    expected[small] = 0
    expected[rare] = table.absent.lookup(keys[:1], DIM, np.dtype(np.float32))
    np.testing.assert_array_equal(Served(model, tmp_path / "out")(keys=keys), expected)


def test_min_frequency_without_frequencies_keeps_every_key() -> None:
    table = make_table(np.arange(10) * 1000, np.ones((10, DIM), np.float32))
    convert = ConvertSparseLookups(CutOptions(min_frequency=5))
    convert.apply(lookup_model(table))
    assert convert.records[0].kept_keys == 10
    assert any("no frequencies" in reason for reason in convert.records[0].reasons)


@pytest.mark.parametrize("rule", ["zero", "row:5"])
def test_absent_keys_get_the_value_of_the_option(tmp_path: Path, rule: str) -> None:
    random = np.random.default_rng(13)
    keys, rows = np.arange(100) * 7919, random.normal(size=(100, DIM)).astype(np.float32)
    keys[3] = 5
    table = make_table(keys, rows, absent_rows("modulo"))
    model = lookup_model(table)
    apply_absent_keys(model, {"user/*": rule})
    convert = ConvertSparseLookups()
    convert.apply(model)
    assert convert.records[0].absent.kind == ("zero" if rule == "zero" else "row")
    assert rule in convert.records[0].absent.source
    found = Served(model, tmp_path / "out")(keys=keys + 1)
    np.testing.assert_array_equal(found, np.broadcast_to(0 if rule == "zero" else rows[3], found.shape))


def test_string_keys_have_no_remainder() -> None:
    keys = np.array([b"a", b"b"], object)
    table = make_table(keys, np.ones((2, DIM), np.float32), absent_rows("modulo"))
    with pytest.raises(ConversionError, match="string keys and 7 default rows, expected one default row"):
        ConvertSparseLookups().apply(lookup_model(table))


def test_key_in_two_parts_is_refused() -> None:
    table = make_table(np.array([1, 2, 3, 1]), np.ones((4, DIM), np.float32), parts=2)
    with pytest.raises(UnreadableError, match="table user/embedding: key 1 more than once, expected distinct keys"):
        ConvertSparseLookups().apply(lookup_model(table))


def test_keys_and_rows_of_different_number_are_refused() -> None:
    table = make_table(np.arange(4), np.ones((3, DIM), np.float32))
    with pytest.raises(UnreadableError, match="4 keys and 3 rows"):
        ConvertSparseLookups().apply(lookup_model(table))


@pytest.fixture
def both_versions(tmp_path: Path) -> list[tuple[Path, np.ndarray, np.ndarray]]:
    """Two models of one form and with other values: folder, keys, and what the rows are."""
    made = []
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        keys = make_keys("uint64", "hashed", 200, random)
        table = make_table(keys, make_rows(len(keys), "hashed", random), absent_rows("modulo"))
        model = lookup_model(table)
        ConvertSparseLookups().apply(model)
        path = tmp_path / str(seed)
        write_saved_model(model, path)
        asked = np.concatenate([keys, keys + np.uint64(seed)])
        made.append((path, asked, reference(table, asked)))
    return made


def test_result_loads_in_tensorflow_two(both_versions: list[tuple[Path, np.ndarray, np.ndarray]]) -> None:
    import tensorflow as tf

    loaded = [tf.saved_model.load(str(path)) for path, _, _ in both_versions]
    for model, (_, asked, expected) in zip(loaded, both_versions, strict=True):
        np.testing.assert_array_equal(model.signatures["serving_default"](keys=tf.constant(asked))["rows"], expected)


def test_result_loads_in_the_library(both_versions: list[tuple[Path, np.ndarray, np.ndarray]]) -> None:
    import processor

    with processor.Model(both_versions[0][0]) as first, processor.Model(both_versions[1][0]) as second:
        for model, (_, asked, expected) in zip((first, second), both_versions, strict=True):
            np.testing.assert_array_equal(model.run({"keys": asked})["rows"], expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
def test_values_that_are_no_weights_are_refused(value: float) -> None:
    rows = np.ones((10, DIM), np.float32)
    rows[7, 2] = value
    table = make_table(np.arange(10) * 100, rows)
    with pytest.raises(UnreadableError, match=r"table user/embedding: row 7 \(key 700\) has .* in column 2"):
        ConvertSparseLookups().apply(lookup_model(table))


def test_wide_table_stays_float_when_int8_would_grow_it(tmp_path: Path) -> None:
    random = np.random.default_rng(14)
    keys, rows = make_keys("int64", "hashed", 300, random), random.normal(size=(300, 1)).astype(np.float32)
    table = make_table(keys, rows[: len(keys)])
    model = lookup_model(table)
    convert = ConvertSparseLookups(CutOptions(embedding_dtype="bf16", tensor_types={"*": "int4", "user/*": "int8"}))
    convert.apply(model)
    (record,) = convert.records
    assert record.dtype == "fp32"
    assert record.forecast["int8"] == record.forecast["int4"] == record.forecast["fp32"]
    assert record.forecast["bf16"] < record.forecast["fp32"]
    assert any("int8 rows of dim 1 take 5 bytes, those of float32 4" in reason for reason in record.reasons)
    np.testing.assert_array_equal(Served(model, tmp_path / "out")(keys=keys), reference(table, keys))


def test_lookup_that_clients_fetch_keeps_its_name(tmp_path: Path) -> None:
    table = make_table(np.arange(10), np.ones((10, DIM), np.float32))
    model = lookup_model(table)
    signature = model.signatures["serving_default"]
    signature.outputs["rows"] = type(signature.outputs["rows"])(
        model.graph["lookup"].output(), signature.outputs["rows"].dtype, None
    )
    ConvertSparseLookups().apply(model)
    assert model.graph["lookup"].op == "Identity"
    np.testing.assert_array_equal(Served(model, tmp_path / "out")(keys=np.arange(3)), np.ones((3, DIM)))
