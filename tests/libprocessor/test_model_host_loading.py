# SPDX-License-Identifier: Apache-2.0
"""Loads that do not end: they keep nobody waiting, have a limit, and stop when nobody wants them any more."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import processor
from helpers.hosts.state_directory import StateDirectory, entry, model_of, versions_in, wait_for_status
from helpers.models.deadly_models import build_deadly
from helpers.system.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_deadly(tmp_path_factory.mktemp("endless") / "1", "endless")


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `endless`, for the half minute of the first test: it leaves the CPUs to other tests."""
    return build_deadly(tmp_path_factory.mktemp("waiting") / "1", "waiting")


def both_warm_up(host: processor.Host) -> bool:
    return [entry(host, name, 1)["state"] for name in "ab"] == ["warming"] * 2


def test_endless_warm_ups_delay_no_other_load(
    host: processor.Host, state: StateDirectory, waiting: Path, tiny_model: Path
) -> None:
    state.desire({"a": model_of(waiting), "b": model_of(waiting)}, load_timeout_seconds=0)
    wait_for_status(host, lambda status: set(status["models"]) == {"a", "b"} and both_warm_up(host))
    # Once both have taken longer than a load usually does; that they do is not waited for a second time below.
    state.desire({"a": model_of(waiting), "b": model_of(waiting), "c": model_of(tiny_model)}, load_timeout_seconds=0)
    wait_for_status(host, lambda status: "c" in status["models"] and entry(host, "c", 1)["state"] == "ready", 90)
    assert both_warm_up(host)
    # Who is not wanted any more stops.
    state.desire({"c": model_of(tiny_model)})
    wait_for_status(host, lambda status: set(status["models"]) == {"c"} and status["stuck_loads"] == 0)


def test_a_load_ends_at_its_time_limit(
    host: processor.Host, state: StateDirectory, endless: Path, tiny_model: Path
) -> None:
    models = {
        "a": model_of(endless, config={"load_timeout_seconds": 1}),
        "b": model_of(endless),
        "c": model_of(tiny_model),
    }
    state.desire(models, load_timeout_seconds=3)
    wait_for_status(host, lambda status: versions_in(status, "failed", "ready") == {("a", 1), ("b", 1), ("c", 1)}, 60)
    for name, seconds in (("a", 1), ("b", 3)):
        assert entry(host, name, 1)["error"] == (
            f"DEADLINE_EXCEEDED: load: not ready after {seconds} s, expected within load_timeout_seconds"
        )
    assert entry(host, "c", 1)["state"] == "ready"
    wait_for_status(host, lambda status: status["stuck_loads"] == 0)
    began = time.process_time()
    time.sleep(2)
    assert time.process_time() - began < 1.0
    # Nobody tries it again by itself, but one that is given more time is another version.
    state.desire({"a": model_of(endless, config={"load_timeout_seconds": 2})})
    wait_for_status(
        host, lambda status: "a" in status["models"] and "after 2 s" in (entry(host, "a", 1)["error"] or "")
    )


def test_a_version_that_is_loaded_again_still_says_why_it_failed(
    host: processor.Host, state: StateDirectory, waiting: Path, tmp_path: Path
) -> None:
    path = tmp_path / "later"
    state.desire({"a": model_of(path)}, load_timeout_seconds=0)
    wait_for_status(host, lambda status: versions_in(status, "failed") == {("a", 1)})
    error = entry(host, "a", 1)["error"]
    assert str(path) in error
    path.symlink_to(waiting)
    wait_for_status(host, lambda _: entry(host, "a", 1)["state"] == "warming")
    assert entry(host, "a", 1)["error"] == error
    # As long as it has not been tried, it says nothing.
    state.desire({"a": model_of(path, config={"session_num": 2})}, load_timeout_seconds=0)
    wait_for_status(host, lambda _: entry(host, "a", 1)["error"] is None)
    state.desire({})
    wait_for_status(host, lambda status: not status["models"] and status["stuck_loads"] == 0)


def test_the_end_of_a_host_does_not_wait_for_an_endless_load(state: StateDirectory, endless: Path) -> None:
    state.desire({"a": model_of(endless)})
    with processor.Host(state.path) as host:
        wait_for_status(host, lambda _: "a" in host.status()["models"] and entry(host, "a", 1)["state"] == "warming")
        records = json.loads((state.path / "hosts" / "host-0" / "loads.json").read_text(encoding="utf-8"))
        assert [one_["loading"] for one_ in records["versions"]] == [True]
        host.prepare_end()

        def marks() -> list[bool]:
            text = (state.path / "hosts" / "host-0" / "loads.json").read_text(encoding="utf-8")
            return [one_["loading"] for one_ in json.loads(text)["versions"]]

        wait_until(lambda: not any(marks()), "no marks")
        began = time.monotonic()
    assert time.monotonic() - began < 10
