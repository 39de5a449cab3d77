# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from helpers.proxies.lifecycle_records import host
from serving_proxy.records.hosts import HostSeen, Seen, VersionSeen, failed_anywhere, held_anywhere, observe
from serving_proxy.records.states import State

PATH = "/models/3"


@pytest.mark.parametrize(
    ("states", "expected", "reason"),
    [
        (["ready", "ready"], State.READY, ""),
        (["ready", "warming"], State.WARMING, "on host-1"),
        (["loading", "warming"], State.LOADING, "on host-0"),
        (["ready", None], State.LOADING, "on host-1"),
        (["ready", "failed: no memory"], State.FAILED, "host-1: no memory; ready on 1 of 2 hosts"),
        (["failed", "failed"], State.FAILED, "host-0: no reason given; failed on 1 more"),
        (["failed: no memory", None], State.LOADING, "on host-1; failed on host-0: no memory"),
        (["failed: no memory", "warming", "ready"], State.WARMING, "on host-1; failed on host-0: no memory"),
        # A host that tries again keeps the error of the attempt before.
        (["loading: no memory"], State.FAILED, "host-0: no memory"),
        (["failed: no memory", "loading: no memory"], State.FAILED, "host-0: no memory; failed on 1 more"),
        (["ready", "warming: no memory"], State.FAILED, "host-1: no memory; ready on 1 of 2 hosts"),
        (["loading: no memory", "loading"], State.LOADING, "on host-1; failed on host-0: no memory"),
        ([None, None], State.STOPPED, "no host has it yet"),
        ([], State.STOPPED, "no host is running"),
    ],
)
def test_reports_of_several_hosts_are_combined(states: list[str | None], expected: State, reason: str) -> None:
    hosts = [host({} if state is None else {3: state}, f"host-{place}") for place, state in enumerate(states)]
    seen = observe(hosts, "ranking", 3, PATH)
    assert (seen.state, seen.reason) == (expected, reason)


@pytest.mark.parametrize("states", [{3: "failed: no memory"}, {3: "loading: no memory"}])
def test_a_failure_is_reported_by_hosts_that_follow_the_desired_state(states: dict[int, str]) -> None:
    assert failed_anywhere([host(states)], "ranking", 3)
    assert not failed_anywhere([host({3: "loading"}), host(states, alive=False)], "ranking", 3)
    # It reports what it followed before, whatever is desired now.
    assert not failed_anywhere([host(states, desired_error="models: too many")], "ranking", 3)
    assert not failed_anywhere([host(states, refuses=True)], "ranking", 3)


def test_dead_hosts_do_not_count() -> None:
    dead = host({3: "ready"}, alive=False)
    assert observe([dead], "ranking", 3, PATH).state == State.STOPPED
    assert not held_anywhere([dead], "ranking", 3)


def test_a_host_that_goes_down_does_not_count() -> None:
    hosts = [host({3: "draining"}, "host-0", state="draining"), host({3: "ready"}, "host-1")]
    assert observe(hosts, "ranking", 3, PATH).state == State.READY
    assert held_anywhere(hosts[:1], "ranking", 3)


def entry(
    state: str, path: str = PATH, error: str | None = None, other: VersionSeen | None = None, warmup: str = ""
) -> HostSeen:
    seen = VersionSeen(state, path, error, {"warmup": warmup}, replacement=other)
    return host({}, models={"ranking": {3: seen}})


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (entry("ready", "/old"), Seen(State.LOADING, "on host-0")),
        (entry("ready", "/old", other=VersionSeen("warming", PATH)), Seen(State.WARMING, "on host-0")),
        (entry("ready", "/old", other=VersionSeen("failed", PATH, "corrupt")), Seen(State.FAILED, "host-0: corrupt")),
        *(
            (
                entry("ready", other=VersionSeen(state, PATH, "bad config")),
                Seen(State.READY, "host-0: its new settings are failed bad config"),
            )
            for state in ("failed", "loading")
        ),
        (entry("ready", "/old", other=VersionSeen("loading", PATH, "corrupt")), Seen(State.FAILED, "host-0: corrupt")),
        # The error is that of other files.
        (entry("loading", "/old", "corrupt"), Seen(State.LOADING, "on host-0")),
        (entry("ready", error="cpuset: no CPU 9"), Seen(State.READY, "host-0: cpuset: no CPU 9")),
        (entry("ready", warmup="generated: 5 runs on each session"), Seen(State.READY)),
        (
            entry("ready", warmup="generated request failed: INTERNAL: a\n b; not warmed up"),
            Seen(State.READY, "host-0: generated request failed: INTERNAL: a b; not warmed up"),
        ),
        (
            entry("ready", error="cpuset: no CPU 9", warmup="a" * 400 + "; not warmed up"),
            Seen(State.READY, "host-0: cpuset: no CPU 9; " + "a" * 300 + "...; not warmed up"),
        ),
    ],
)
def test_a_replacement_is_observed_by_its_path(seen: HostSeen, expected: Seen) -> None:
    assert observe([seen], "ranking", 3, PATH) == expected


def test_what_one_host_lacks_is_reported() -> None:
    cold = entry("ready", warmup="generated request failed: INTERNAL: a; not warmed up")
    seen = observe([host({3: "ready"}, "host-1"), cold], "ranking", 3, PATH)
    assert seen == Seen(State.READY, "host-0: generated request failed: INTERNAL: a; not warmed up")
