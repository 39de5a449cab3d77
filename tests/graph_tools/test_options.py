# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from graph_tools.errors import UsageError
from graph_tools.options import CutOptions


def test_last_matching_pattern_counts() -> None:
    options = CutOptions(embedding_dtype="bf16", tensor_types={"user/*": "int8", "user/id": "fp32"})
    assert [options.row_type(name) for name in ("item", "user/age", "user/id")] == ["bf16", "int8", "fp32"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"embedding_dtype": "int2"}, r"--embedding-dtype: 'int2', expected one of fp32, bf16, fp16, int8, int4"),
        ({"tensor_types": {"user*": "double"}}, r"user\*: 'double', expected one of"),
        ({"absent_key": {"user": "row:"}}, r"--absent-key user: 'row:', expected zero, row:K or default"),
        ({"min_norm": -1.0}, r"--min-norm: -1.0, expected at least 0"),
        ({"min_norm": float("nan")}, r"--min-norm: nan"),
        ({"min_norm": float("inf")}, r"--min-norm: inf"),
        ({"min_frequency": -1}, r"--min-frequency: -1"),
        ({"memory_limit": 1000}, r"--memory-limit: 1000"),
    ],
)
def test_invalid_option_values_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CutOptions(**given)


def test_pattern_without_a_table_is_refused() -> None:
    options = CutOptions(tensor_types={"user/*": "int8"}, absent_key={"item": "zero"})
    options.check_names(["user/id", "item"])
    with pytest.raises(UsageError, match=r"--absent-key item: no table of this name, expected one of: user/id"):
        options.check_names(["user/id"])
    with pytest.raises(UsageError, match=r"--tensor-type user/\*: no table of this name, expected one of: none"):
        options.check_names([])
