# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import SparseTable
from graph_tools.readers import tensornet_block, tensornet_files
from graph_tools.readers.tensornet_files import Options
from graph_tools.tables.checks import check_table
from helpers.models import sparse_files

DIM = 4
# Signs are hashes: most of them are beyond int64 and beyond what a double can hold.
SIGNS = [(0x9E3779B97F4A7C15 * (i + 1)) % 2**64 for i in range(100)]


def row_of(sign: int) -> list[float]:
    """Four weights that six digits hold exactly."""
    return [(sign % 97 - 48) / 8, 0.0, 1e-5, float(sign % 7)]


def blocks_of(make: Callable[[list[int]], bytes], ranks: int = 2) -> list[list[bytes]]:
    """Spread the signs over eight blocks a rank; the last block of the first rank stays empty."""
    spread: list[list[list[int]]] = [[[] for _ in range(8)] for _ in range(ranks)]
    for i, sign in enumerate(SIGNS):
        rank, block = i % ranks, i // ranks % 8
        spread[rank][0 if (rank, block) == (0, 7) else block].append(sign)
    return [[make(signs) for signs in blocks] for blocks in spread]


def adagrad_text(signs: list[int]) -> bytes:
    lines = [
        sparse_files.tensornet_adagrad_line(sign, row_of(sign), show=sign % 5 / 2, days=sign % 9) for sign in signs
    ]
    return sparse_files.tensornet_text("AdaGrad", DIM, lines)


def adagrad_binary(signs: list[int]) -> bytes:
    records = [
        sparse_files.tensornet_adagrad_record(sign, row_of(sign), show=sign % 5 / 2, days=sign % 9) for sign in signs
    ]
    return sparse_files.tensornet_binary(DIM, records)


def check_content(table: SparseTable, show: Callable[[int], float] = lambda sign: sign % 5 / 2) -> None:
    check_table(table)
    assert (table.family, table.dim, table.key_dtype, table.count) == ("tensornet", DIM, np.dtype(np.uint64), 100)
    assert len(table.parts) == 15
    rows, shows = {}, {}
    for part in table.parts:
        assert part.frequencies is not None
        keys = part.keys.read().tolist()
        assert all(len(chunk) <= 2 for chunk in part.rows.chunks(2))
        rows.update(zip(keys, part.rows.read().tolist(), strict=True))
        shows.update(zip(keys, part.frequencies.read().tolist(), strict=True))
    assert rows == {sign: np.float32(row_of(sign)).tolist() for sign in SIGNS}
    assert shows == {sign: show(sign) for sign in SIGNS}


@pytest.mark.parametrize("pattern", ["sparse_block_{}.gz", "block_{}.gz", "sparse_block_{}_txt.gz", "sparse_block_{}"])
def test_text(tmp_path: Path, pattern: str) -> None:
    folder = tmp_path / "model" / "sparse_table" / "0"
    sparse_files.write_tensornet(folder, blocks_of(adagrad_text), pattern)
    assert tensornet_files.find_tables(tmp_path / "model") == {"0": folder}
    assert tensornet_files.find_tables(folder.parent) == {"0": folder}
    table = tensornet_files.open_table("wide", folder)
    check_content(table)
    assert table.dropped_tensors == [
        ("wide: g2sum", 400, "optimizer state"),
        ("wide: no_show_days", 400, "statistics"),
    ]
    assert table.absent.kind == "zero"
    assert "sparse_zero_init" in table.absent.source


@pytest.mark.parametrize("pattern", ["sparse_block_{}_bin.gz", "block_{}.gz", "sparse_block_{}"])
def test_binary(tmp_path: Path, pattern: str) -> None:
    sparse_files.write_tensornet(tmp_path / "t", blocks_of(adagrad_binary), pattern)
    table = tensornet_files.open_table("t", tmp_path / "t")
    check_content(table)
    assert table.dropped_tensors == [("t: g2sum", 400, "optimizer state"), ("t: no_show_days", 400, "statistics")]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("optimizer", ["Adam", "Ftrl"])
def test_optimizers_with_two_moments(tmp_path: Path, optimizer: str, binary: bool) -> None:
    def make(signs: list[int]) -> bytes:
        if binary:
            made = [sparse_files.tensornet_moments_record(sign, row_of(sign), sign % 5 / 2) for sign in signs]
            return sparse_files.tensornet_binary(DIM, made)
        lines = [sparse_files.tensornet_moments_line(sign, row_of(sign), sign % 5 / 2) for sign in signs]
        return sparse_files.tensornet_text(optimizer, DIM, lines)

    sparse_files.write_tensornet(tmp_path / "t", blocks_of(make))
    for options in (None, Options(optimizer)):
        table = tensornet_files.open_table("t", tmp_path / "t", options)
        check_content(table)
        assert table.dropped_tensors == [("t: moments", 100 * 8 * DIM, "optimizer state")]


def test_the_order_of_the_first_releases(tmp_path: Path) -> None:
    def make(signs: list[int]) -> bytes:
        lines = [sparse_files.tensornet_old_line(sign, row_of(sign), 0.1, 1, 0.98 * (sign % 5)) for sign in signs]
        return sparse_files.tensornet_text("AdaGrad", DIM, lines)

    sparse_files.write_tensornet(tmp_path / "t", blocks_of(make))
    table = tensornet_files.open_table("t", tmp_path / "t")
    check_content(table, lambda sign: float(np.float32(f"{0.98 * (sign % 5):g}")))
    assert [name for name, _, _ in table.dropped_tensors] == ["t: g2sum", "t: version"]


def test_five_columns_of_whole_numbers_can_be_told_apart_by_option(tmp_path: Path) -> None:
    lines = [sparse_files.tensornet_old_line(sign, row_of(sign), 0.1, 1, 3) for sign in SIGNS]
    blocks = [sparse_files.tensornet_text("AdaGrad", DIM, lines if i == 2 else []) for i in range(8)]
    sparse_files.write_tensornet(tmp_path / "t", [blocks])
    for version_first, show in ((None, 1), (True, 3), (False, 1)):
        (part,) = tensornet_files.open_table("t", tmp_path / "t", Options(version_first=version_first)).parts
        assert part.frequencies is not None
        assert set(part.frequencies.read().tolist()) == {show}


def test_releases_without_days(tmp_path: Path) -> None:
    def make(signs: list[int]) -> bytes:
        lines = [
            sparse_files.tensornet_adagrad_line(sign, row_of(sign), show=sign % 5 / 2).rsplit("\t", 2)[0]
            for sign in signs
        ]
        return sparse_files.tensornet_text("AdaGrad", DIM, lines)

    sparse_files.write_tensornet(tmp_path / "t", blocks_of(make))
    check_content(tensornet_files.open_table("t", tmp_path / "t"))


@pytest.mark.parametrize("binary", [False, True])
def test_clicks_and_cvm(tmp_path: Path, binary: bool) -> None:
    def make(signs: list[int]) -> bytes:
        values = [(sign, row_of(sign), 0.1, sign % 5 / 2, 3, float(sign % 3)) for sign in signs]
        if binary:
            made = [sparse_files.tensornet_adagrad_record(*each) for each in values]
            return sparse_files.tensornet_binary(DIM, made)
        return sparse_files.tensornet_text(
            "AdaGrad", DIM, [sparse_files.tensornet_adagrad_line(*each) for each in values]
        )

    sparse_files.write_tensornet(tmp_path / "t", blocks_of(make))
    table = tensornet_files.open_table("t", tmp_path / "t")
    check_content(table)
    assert [name for name, _, _ in table.dropped_tensors] == ["t: g2sum", "t: no_show_days", "t: click"]

    table = tensornet_files.open_table("t", tmp_path / "t", Options(use_cvm=True))
    check_table(table)
    assert table.dim == DIM + 2
    for part in table.parts:
        signs = part.keys.read().tolist()
        expected = [[*row_of(s), s % 5 / 2, np.log(s % 3 + 1) - np.log(s % 5 / 2 + 1)] for s in signs]
        np.testing.assert_allclose(part.rows.read(), expected, rtol=1e-6, atol=1e-7)


def test_cvm_needs_clicks(tmp_path: Path) -> None:
    sparse_files.write_tensornet(tmp_path / "t", blocks_of(adagrad_text))
    with pytest.raises(UnreadableError, match="table t: records without clicks, expected them with use_cvm"):
        tensornet_files.open_table("t", tmp_path / "t", Options(use_cvm=True))


def test_a_binary_table_of_one_weight_may_need_the_optimizer(tmp_path: Path) -> None:
    records = [sparse_files.tensornet_adagrad_record(sign, [0.5], 0.1, 1.0, 0) for sign in SIGNS]
    blocks = [sparse_files.tensornet_binary(1, records if i == 0 else []) for i in range(8)]
    sparse_files.write_tensornet(tmp_path / "t", [blocks])
    with pytest.raises(UnreadableError, match=r"records that fit Ada.*expected those of one optimizer"):
        tensornet_files.open_table("t", tmp_path / "t")
    table = tensornet_files.open_table("t", tmp_path / "t", Options("AdaGrad"))
    assert (table.dim, table.count) == (1, 100)
    # Days that are not all zero give it away: as a float they would be denormal.
    records = [sparse_files.tensornet_adagrad_record(sign, [0.5], 0.1, 1.0, sign % 9) for sign in SIGNS]
    sparse_files.write_tensornet(tmp_path / "u", [[sparse_files.tensornet_binary(1, records)] * 8])
    assert tensornet_files.open_table("u", tmp_path / "u").dropped_tensors[0][0] == "u: g2sum"


def test_text_over_many_blocks_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensornet_block, "_TEXT_BLOCK", 17)
    sparse_files.write_tensornet(tmp_path / "t", blocks_of(adagrad_text))
    check_content(tensornet_files.open_table("t", tmp_path / "t"))


def rewrite(folder: Path, index: int, data: bytes, rank: int = 1) -> None:
    (folder / f"rank_{rank}" / f"sparse_block_{index}.gz").write_bytes(gzip.compress(data))


def test_bad_text(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    sparse_files.write_tensornet(folder, blocks_of(adagrad_text))
    good = adagrad_text(SIGNS[:5])
    for data, found in (
        (good.replace(b"dim:4", b"dim:5"), r"sparse_block_3\.gz: dim 5, expected 4 as in sparse_block_0\.gz"),
        (good.replace(b"dim:4", b"dim:x"), r"sparse_block_3\.gz: dimension 0, expected 1 to 65536"),
        (good.replace(b"AdaGrad", b"Adam"), r"sparse_block_3\.gz: opt_name Adam, expected AdaGrad as in"),
        (
            good.replace(b"AdaGrad", b"Lamb"),
            r"sparse_block_3\.gz: opt_name 'Lamb', expected one of AdaGrad, Adam, Ftrl",
        ),
        (b"opt_name:AdaGrad\n\n", r"sparse_block_3\.gz: begins with .*, expected lines opt_name: and dim:"),
        (good.rstrip(b"\n")[:-4], r"sparse_block_3\.gz: ends with .*, expected every line to end with a line feed"),
        (
            good.replace(b"\t", b"\t1\t1\t", 1),
            r"sparse_block_3\.gz: 11 columns, expected those of AdaGrad of dimension 4",
        ),
        (good[:-2] + b"1\t\n", r"sparse_block_3\.gz: line 7 has other columns than the first, expected 9 tabs"),
        (adagrad_binary(SIGNS[:5]), r"sparse_block_3\.gz: binary, expected the kind of sparse_block_0\.gz"),
        (good.replace(b"\t\n", b"\t5\n"), r"sparse_block_3\.gz: columns .*, click, expected .*, no_show_days$"),
        (b"abc", r"sparse_block_3\.gz: 3 bytes, expected at least the dimension"),
    ):
        rewrite(folder, 3, data)
        with pytest.raises(UnreadableError, match=found):
            tensornet_files.open_table("t", folder)


def test_text_values_that_are_no_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    sparse_files.write_tensornet(folder, blocks_of(adagrad_text))
    lines = adagrad_text(SIGNS[:5]).split(b"\n")
    for cell, found in ((b"4x", "could not convert string '4x' to int32"), (b"5", "a row of dimension 5, expected 4")):
        changed = lines.copy()
        changed[4] = changed[4].replace(b"\t4\t", b"\t" + cell + b"\t", 1)
        rewrite(folder, 3, b"\n".join(changed))
        table = tensornet_files.open_table("t", folder)
        with pytest.raises(UnreadableError, match=rf"sparse_block_3\.gz: .*{found}"):
            check_table(table)
    rewrite(folder, 3, b"\n".join([*lines[:4], lines[4].replace(lines[4].split(b"\t")[0], b"-1"), *lines[5:]]))
    with pytest.raises(UnreadableError, match="could not convert string '-1' to uint64"):
        check_table(tensornet_files.open_table("t", folder))


def test_bad_binary(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    sparse_files.write_tensornet(folder, blocks_of(adagrad_binary))
    good = adagrad_binary(SIGNS[:5])
    for data, found in (
        (good[:-9], r"t: blocks of .* bytes, expected whole records of AdaGrad, Adam or Ftrl of dimension 4"),
        (b"\x05" + good[1:], r"sparse_block_3\.gz: dim 5, expected 4"),
        (b"\xff\xff\xff\xff" + good[4:], r"sparse_block_3\.gz: dimension -1, expected 1 to 65536"),
    ):
        rewrite(folder, 3, data)
        with pytest.raises(UnreadableError, match=found):
            tensornet_files.open_table("t", folder)


@pytest.mark.parametrize("make", [adagrad_text, adagrad_binary])
def test_missing_and_truncated_files(tmp_path: Path, make: Callable[[list[int]], bytes]) -> None:
    folder = tmp_path / "t"
    sparse_files.write_tensornet(folder, blocks_of(make, ranks=3))
    path = folder / "rank_1" / "sparse_block_7.gz"
    stored = path.read_bytes()
    path.write_bytes(stored[:-10])
    with pytest.raises(UnreadableError, match=r"sparse_block_7\.gz: the gzip data ends too early, expected"):
        tensornet_files.open_table("t", folder)
    path.unlink()
    with pytest.raises(UnreadableError, match=r"rank_1: block 7 does not exist, expected blocks 0 to 7"):
        tensornet_files.open_table("t", folder)
    (folder / "rank_1" / "block_7.gz").write_bytes(stored)
    with pytest.raises(UnreadableError, match=r"rank_1: blocks named in 2 ways, expected one"):
        tensornet_files.open_table("t", folder)
    (folder / "rank_1").rename(folder / "gone")
    with pytest.raises(UnreadableError, match=r"rank_1: does not exist, expected ranks 0 to 2"):
        tensornet_files.open_table("t", folder)
    with pytest.raises(UnreadableError, match=r"no rank_0, expected the folders of a table"):
        tensornet_files.open_table("t", folder / "nothing")
    with pytest.raises(UnreadableError, match=r"nothing: does not exist, expected a folder of tables"):
        tensornet_files.find_tables(folder / "nothing")


@pytest.mark.parametrize(
    "empty", [sparse_files.tensornet_text("AdaGrad", DIM, []), sparse_files.tensornet_binary(DIM, [])]
)
def test_an_empty_table(tmp_path: Path, empty: bytes) -> None:
    sparse_files.write_tensornet(tmp_path / "t", [[empty] * 8])
    with pytest.raises(UnreadableError, match=r"table t: no rows in .*, expected at least one"):
        tensornet_files.open_table("t", tmp_path / "t")


def test_a_key_in_two_blocks(tmp_path: Path) -> None:
    sparse_files.write_tensornet(tmp_path / "t", [[adagrad_text(SIGNS[i : i + 2]) for i in range(8)]])
    with pytest.raises(UnreadableError, match=r"table t: key \d+ more than once"):
        check_table(tensornet_files.open_table("t", tmp_path / "t"))
