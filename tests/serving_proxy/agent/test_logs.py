# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from serving_proxy.agent.logs import part_of


def test_parts_of_records_are_those_of_one_file() -> None:
    records = [b"abc", b"", b"defgh", b"i", b"jk"]
    whole = b"".join(records)
    for start in range(len(whole) + 2):
        for most in range(1, len(whole) + 2):
            assert part_of(records, start, most) == whole[start : start + most]
