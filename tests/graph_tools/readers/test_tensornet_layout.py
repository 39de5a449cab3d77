# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest

from graph_tools.readers import tensornet_layout as layouts


@pytest.mark.parametrize(
    ("optimizer", "columns", "version_first", "names"),
    [
        ("AdaGrad", 12, False, ["sign", "dim", "w", "g2sum", "show"]),
        ("AdaGrad", 13, False, ["sign", "dim", "w", "g2sum", "show", "no_show_days"]),
        ("AdaGrad", 13, True, ["sign", "dim", "w", "g2sum", "version", "show"]),
        ("AdaGrad", 14, False, ["sign", "dim", "w", "g2sum", "show", "no_show_days", "click"]),
        ("Adam", 26, False, ["sign", "moments", "show"]),
        ("Ftrl", 26, True, ["sign", "moments", "show"]),
    ],
)
def test_text_columns(optimizer: str, columns: int, version_first: bool, names: list[str]) -> None:
    layout = layouts.text_layout(optimizer, 8, columns, version_first)
    assert layout is not None
    assert list(layout.names or ()) == names


@pytest.mark.parametrize(("optimizer", "columns"), [("AdaGrad", 11), ("AdaGrad", 15), ("Adam", 13), ("Ftrl", 27)])
def test_unknown_numbers_of_columns_have_no_layout(optimizer: str, columns: int) -> None:
    assert layouts.text_layout(optimizer, 8, columns, False) is None


def test_binary_records_are_packed() -> None:
    sizes = {kind: layout.itemsize for kind, layout in layouts.binary_layouts(8).items()}
    assert sizes == {
        ("AdaGrad", False): 8 + 32 + 12,
        ("AdaGrad", True): 8 + 32 + 16,
        ("Adam", False): 8 + 96 + 4,
        ("Ftrl", False): 8 + 96 + 4,
    }


def test_plausible() -> None:
    layout = layouts.binary_layouts(1)[("AdaGrad", False)]
    records = np.zeros(3, layout)
    assert layouts.is_plausible(records)
    for name, value in [("show", -1), ("show", np.nan), ("show", 1e-44), ("no_show_days", -1), ("g2sum", -0.5)]:
        bad = records.copy()
        bad[name][1] = value
        assert not layouts.is_plausible(bad), name


def test_bytes_of_dropped_columns_are_counted_by_kind() -> None:
    kinds = layouts.binary_layouts(8)
    assert layouts.dropped_bytes(kinds[("AdaGrad", True)], 8, 8) == {"g2sum": 4, "no_show_days": 4, "click": 4}
    assert layouts.dropped_bytes(kinds[("AdaGrad", True)], 8, 10) == {"g2sum": 4, "no_show_days": 4}
    assert layouts.dropped_bytes(kinds[("Adam", False)], 8, 8) == {"moments": 64}
    text = layouts.text_layout("Adam", 8, 26, False)
    assert text is not None
    assert layouts.dropped_bytes(text, 8, 8) == {"moments": 64}


def test_cvm_columns() -> None:
    records = np.zeros(2, layouts.binary_layouts(1)[("AdaGrad", True)])
    records["w"], records["show"], records["click"] = [[0.5], [0.25]], [3, 0], [1, 0]
    np.testing.assert_allclose(layouts.weights_with_cvm(records), [[0.5, 3, np.log(0.5)], [0.25, 0, 0]], rtol=1e-6)
