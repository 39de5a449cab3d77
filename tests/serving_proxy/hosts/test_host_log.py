# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

from serving_proxy.hosts.host_log import bound_log, last_line, open_log


def test_the_last_line_of_a_log_is_returned(tmp_path: Path) -> None:
    assert last_line(tmp_path) == ""
    file = open_log(tmp_path / "host-0")
    os.write(file, b"x" * 10_000 + b"\nfirst\nlast \xff one\n\n")
    os.close(file)
    assert last_line(tmp_path / "host-0") == "last \ufffd one"


def test_a_log_is_bounded_while_it_is_written_to(tmp_path: Path) -> None:
    file = open_log(tmp_path)
    os.write(file, b"a" * 50)
    assert not bound_log(tmp_path, most=100)
    os.write(file, b"b" * 100)
    assert bound_log(tmp_path, most=100)
    os.write(file, b"c")
    os.close(file)
    assert (tmp_path / "host.log").read_bytes() == b"c"
    assert (tmp_path / "host.log.1").read_bytes() == b"a" * 50 + b"b" * 100
