# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator

import pytest

from serving_proxy.leadership.ray_lease import _answers

_MANY = 1100


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Open so many descriptors that those of new processes are above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"RLIMIT_NOFILE {hard}, expected at least {wanted}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    null = os.open(os.devnull, os.O_RDONLY)
    opened = [null, *(os.dup(null) for _ in range(_MANY))]
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_answer_is_read_while_the_proxy_has_many_connections() -> None:
    with subprocess.Popen(["sh", "-c", "read line; echo answer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ray:
        assert ray.stdin is not None
        assert ray.stdout is not None
        assert ray.stdout.fileno() > 1023
        assert not _answers(ray, 0.0)
        ray.stdin.write(b"request\n")
        ray.stdin.flush()
        assert _answers(ray, 60.0)
        assert ray.stdout.readline() == b"answer\n"
        # The end of the process is an answer, too.
        assert _answers(ray, 60.0)
        assert ray.stdout.read() == b""
