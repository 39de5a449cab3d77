# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest

from serving_proxy.errors import InvalidError
from serving_proxy.system.cpus import format_cpus, parse_cpus


def test_cpu_lists_are_read_and_written_as_the_kernel_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert parse_cpus("0-3, 8,5-5", "--cpus") == {0, 1, 2, 3, 5, 8}
    assert format_cpus({0, 1, 2, 3, 5, 8}) == "0-3,5,8"


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1;2", "0x1", "0-99999999"])
def test_invalid_cpu_lists_are_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="--cpus: "):
        parse_cpus(text, "--cpus")


def test_cpus_that_this_process_may_not_use_are_refused() -> None:
    with pytest.raises(InvalidError, match=r"--cpus: CPUs 60000, expected some of "):
        parse_cpus("60000", "--cpus")
