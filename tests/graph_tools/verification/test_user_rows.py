# SPDX-License-Identifier: Apache-2.0
"""Test requests for a split model: rows of many users, equal rows of one user, and one row."""

from __future__ import annotations

import numpy as np

from graph_tools.verification.request import Request
from graph_tools.verification.user_rows import item_rows, with_user_forms, with_user_repeated

USER = ["u", "v"]


def request(rows: int, users: int | None = None, origin: str = "generated 1, known keys") -> Request:
    """Make a request of distinct numbers."""
    count = rows if users is None else users
    inputs = {"u": np.arange(count), "v": np.arange(2 * count).reshape(count, 2) + 5.0}
    return Request("score", {**inputs, "item": np.arange(rows) + 10, "scale": np.array(2.0)}, origin)


def test_requests_with_equal_user_rows_and_with_one_row_alternate() -> None:
    asked = [request(3), request(1), request(0), request(2, origin="generated 2, absent keys")]
    found = list(with_user_forms(asked, USER))
    assert [request.origin for request in found] == [
        "generated 1, known keys",
        "generated 1, known keys, equal rows of the user",
        "generated 1, known keys",
        "generated 1, known keys",
        "generated 2, absent keys",
        "generated 2, absent keys, one row of the user",
    ]
    assert all(request.generated for request in found)
    equal, once = found[1], found[5]
    assert equal.short is None
    assert equal.shortest is equal
    np.testing.assert_array_equal(equal.inputs["u"], [0, 0, 0])
    np.testing.assert_array_equal(equal.inputs["item"], [10, 11, 12])
    np.testing.assert_array_equal(once.inputs["v"], [[5, 6], [5, 6]])
    np.testing.assert_array_equal(once.shortest.inputs["v"], [[5, 6]])
    np.testing.assert_array_equal(once.shortest.inputs["item"], [10, 11])
    assert once.shortest.short is None


def test_without_user_inputs_nothing_is_added() -> None:
    asked = [request(3), request(2)]
    assert list(with_user_forms(asked, [])) == asked


def test_recorded_requests_of_one_user_are_completed_for_the_first_model() -> None:
    found = with_user_repeated(request(3, users=1, origin="file.npz"), USER)
    assert not found.generated
    np.testing.assert_array_equal(found.inputs["u"], [0, 0, 0])
    np.testing.assert_array_equal(found.shortest.inputs["u"], [0])
    for asked in (request(3), request(1), request(3, users=2), request(0, users=0)):
        assert with_user_repeated(asked, USER) is asked
    short = request(3, users=1)
    assert with_user_repeated(short, []) is short


def test_rows_are_those_of_items() -> None:
    assert item_rows(request(4, users=7).inputs, USER) == 4
    assert item_rows({"u": np.zeros(3), "scale": np.array(1)}, USER) is None
