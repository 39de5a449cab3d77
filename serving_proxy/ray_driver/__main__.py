# SPDX-License-Identifier: Apache-2.0
"""The process that talks to Ray for a proxy: it answers requests, which are lines of JSON, until its input ends."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from serving_proxy.errors import InvalidError, ProxyError
from serving_proxy.ray_driver.cluster import Cluster


def main() -> None:
    """Connect, say so, and answer."""
    asked = json.loads(sys.argv[1])
    # Ray and its libraries may print.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_the_proxy, daemon=True).start()
    # The cluster that the environment names must not replace the one of the option.
    try:
        cluster = Cluster(asked["address"], asked["namespace"])
        if asked.get("has_lease"):
            cluster.leases.start()
    except Exception as error:
        said = str(error) if isinstance(error, ProxyError) else f"--ray-address {asked['address']}: {_line(error)}"
        _tell(answers, {"error": said, "invalid": isinstance(error, InvalidError)})
        return
    _tell(answers, {"result": "connected"})
    names = ("look", "create", "follow", "drain", "remove", "restart", "request")
    verbs: Mapping[str, Callable[..., Any]] = {
        **{name: getattr(cluster, name) for name in names},
        "read_lease": cluster.leases.read_lease,
        "write_lease": cluster.leases.write_lease,
    }
    for line in sys.stdin:
        found = json.loads(line)
        number, verb = found.pop("id"), found.pop("do")
        try:
            _tell(answers, {"id": number, "result": verbs[verb](**found)})
        except Exception as error:
            _tell(answers, {"id": number, "error": f"ray, {verb}: {_line(error)}"})
    # Ray's own end of a process may wait for a cluster that is gone.
    os._exit(0)


def _end_with_the_proxy() -> None:
    """End once the proxy has closed its end of the input, even while Ray is being connected to, which takes minutes."""
    ended = select.poll()
    # It always tells of the other end being closed, and here of nothing else.
    ended.register(0, 0)
    ended.poll()
    os._exit(0)


def _tell(answers: TextIO, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:500] if lines else type(error).__name__


if __name__ == "__main__":
    main()
