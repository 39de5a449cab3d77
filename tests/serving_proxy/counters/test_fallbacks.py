# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from helpers.proxies.lifecycle_records import host
from serving_proxy.counters.fallbacks import Fallbacks
from serving_proxy.records.hosts import HostSeen

KEY = ("ranking", 3)


def reports(precision: str, name: str = "host-0", fell_back: bool = True) -> HostSeen:
    found = {"precision": precision, "fell_back": fell_back, "reason": f"{precision} on {name}"}
    versions = {"versions": {"3": {"live": {"precision": found}}}}
    return replace(host({3: "ready"}, name), stats={"models": {"ranking": versions}})


def test_a_version_that_falls_back_is_reported_once() -> None:
    fallbacks = Fallbacks()
    assert fallbacks.step([reports("int8", fell_back=False)], [KEY]) == []
    both = [reports("bf16"), reports("bf16", "host-1")]
    assert fallbacks.step(both, [KEY, ("ranking", 4)]) == [(KEY, "bf16 on host-0")]
    assert fallbacks.step(both, [KEY]) == []
    assert fallbacks.step([reports("fp32")], [KEY]) == [(KEY, "fp32 on host-0")]
    assert fallbacks.step([reports("int8", fell_back=False)], [KEY]) == []
    assert fallbacks.step([reports("bf16")], [KEY]) == [(KEY, "bf16 on host-0")], "it was loaded again"
