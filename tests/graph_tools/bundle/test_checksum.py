# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import google_crc32c
import numpy as np

from graph_tools.bundle import checksum


def test_the_check_value_of_the_standard() -> None:
    assert checksum.extend(0, b"123456789") == 0xE3069283
    assert checksum.extend(checksum.extend(0, b"12345"), np.frombuffer(b"6789", np.uint8)) == 0xE3069283


def test_the_mask_rotates_and_shifts() -> None:
    assert checksum.mask(0) == 0xA282EAD8
    assert checksum.mask(0x00008000) == (1 + 0xA282EAD8)


def test_the_fast_implementation_of_crc32c_is_installed() -> None:
    assert google_crc32c.implementation == "c"
