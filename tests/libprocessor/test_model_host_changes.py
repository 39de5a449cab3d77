# SPDX-License-Identifier: Apache-2.0
"""What a host serves changes while requests come, and none is lost."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

import processor
from helpers.hosts.host_clients import ONE, QUICK, Clients, scale_of
from helpers.hosts.state_directory import StateDirectory, entry, model_of, versions_in, wait_for_status
from helpers.system.process_state import num_fds, threads_named
from helpers.system.waiting import wait_until

CPUS = sorted(os.sched_getaffinity(0))


def test_baseline_moves_once_the_new_one_is_ready(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1], 1, config=QUICK)})
    with Clients(host) as clients:
        clients.wait_for_more()
        for number, scale in itertools.islice(itertools.cycle([(2, 2), (3, 3), (1, 1)]), 6):
            # The former one is not even desired any more.
            state.desire({"m": model_of(scaled_models[scale], number, config=QUICK)})
            wait_for_status(host, lambda status: versions_in(status, "ready") == {("m", number)})  # noqa: B023
            clients.wait_for_more()
    assert clients.failures == []
    for answers in clients.answers:
        assert all(scale_of(answer) == answer.model_version for answer in answers)
        # Nobody goes back while a switch is under way.
        order = [version for version, _ in itertools.groupby(answer.model_version for answer in answers)]
        assert order == [1, 2, 3, 1, 2, 3, 1]


def test_a_version_is_replaced_in_place(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1], config=QUICK)})
    with Clients(host) as clients:
        for scale in (2, 3, 1):
            clients.wait_for_more()
            state.serve(host, {"m": model_of(scaled_models[scale], config=QUICK)})
            wait_until(lambda: entry(host, "m", 1)["path"] == str(scaled_models[scale]), "the new path")  # noqa: B023
        clients.wait_for_more()
    assert clients.failures == []
    for answers in clients.answers:
        assert [scale for scale, _ in itertools.groupby(map(scale_of, answers))] == [1.0, 2.0, 3.0, 1.0]
    # The same folder with another configuration is another version as well.
    state.serve(host, {"m": model_of(scaled_models[1], config=QUICK | {"session_num": 2})})
    assert entry(host, "m", 1)["sessions"] == 2


def _replacement(status: dict[str, Any]) -> dict[str, Any]:
    return status["models"]["m"]["versions"]["1"]["replacement"] or {}


def test_a_failed_replacement_leaves_the_old_version_serving(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path], tmp_path: Path
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1])})
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "saved_model.pb").write_bytes(b"\xff" * 100)
    with Clients(host) as clients:
        for path, words in ((damaged, "saved_model.pb"), (tmp_path / "nowhere", "nowhere")):
            state.desire({"m": model_of(path)})
            wait_for_status(host, lambda status: words in (_replacement(status).get("error") or ""))  # noqa: B023
            assert _replacement(host.status())["state"] == "failed"
            assert entry(host, "m", 1)["state"] == "ready"
            clients.wait_for_more()
        state.serve(host, {"m": model_of(scaled_models[2])})
        clients.wait_for_more()
    assert clients.failures == []
    assert {scale_of(answer) for answers in clients.answers for answer in answers} == {1.0, 2.0}


def test_a_failed_baseline_leaves_the_former_one_serving(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1], 1)})
    state.desire({"m": model_of(scaled_models[2], 2, config={"session_num": 0})})
    wait_for_status(host, lambda status: status["models"]["m"]["versions"].get("2", {}).get("state") == "failed")
    assert "session_num" in entry(host, "m", 2)["error"]
    assert scale_of(host.process("eas", ONE)) == 1.0
    with pytest.raises(processor.UnavailableError, match="version 2 is failed"):
        host.process("eas", ONE, model_version=2)
    assert entry(host, "m", 1)["state"] == "ready"
    state.serve(host, {"m": model_of(scaled_models[2], 2)})
    assert scale_of(host.process("eas", ONE)) == 2.0


def test_a_malformed_desired_state_changes_nothing(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1])})
    for text in ("{", "[]", '{"schema": 1, "generation": 9, "models": 5}', '{"schema": 2}'):
        state.write(text)
        wait_for_status(host, lambda status: status["desired_error"] is not None)
        assert host.status()["generation"] == state.generation
        assert scale_of(host.process("eas", ONE)) == 1.0
        state.serve(host, {"m": model_of(scaled_models[1])})
        assert host.status()["desired_error"] is None
    (state.path / "desired.json").unlink()
    wait_for_status(host, lambda status: status["desired_error"] is not None)
    assert scale_of(host.process("eas", ONE)) == 1.0
    state.serve(host, {"m": model_of(scaled_models[2])})
    assert host.status()["desired_error"] is None


def test_a_version_whose_path_vanishes_still_serves(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path], tmp_path: Path
) -> None:
    link = tmp_path / "current"
    state.desire({"m": model_of(link)})
    wait_for_status(
        host, lambda status: status["models"].get("m", {}).get("versions", {}).get("1", {}).get("state") == "failed"
    )
    link.symlink_to(scaled_models[1])
    wait_for_status(
        host, lambda status: versions_in(status, "ready") == {("m", 1)}
    )  # tried again after a second or two
    assert entry(host, "m", 1)["path"] == str(scaled_models[1])
    link.unlink()
    state.serve(host, {"m": model_of(link) | {"labels": {"stable": 1}}})
    assert scale_of(host.process("eas", ONE, version_label="stable")) == 1.0


def test_memory_limit_keeps_versions_out(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1], 1)})
    size = entry(host, "m", 1)["memory_bytes"]
    assert size > 0
    two = {"m": {"baseline": 1, "versions": {str(n): {"path": str(scaled_models[n])} for n in (1, 2)}}}
    state.desire(two, memory_limit_bytes=size + 10)
    wait_for_status(host, lambda status: status["models"]["m"]["versions"].get("2", {}).get("state") == "failed")
    error = entry(host, "m", 2)["error"]
    assert error.startswith("RESOURCE_EXHAUSTED: memory: ")
    assert str(size) in error
    assert str(size + 10) in error
    assert scale_of(host.process("eas", ONE)) == 1.0
    # It is tried again, and a limit that leaves room lets it in.
    state.serve(host, two, memory_limit_bytes=3 * size)
    assert host.status()["memory_limit_bytes"] == 3 * size
    assert host.status()["memory_bytes"] <= 3 * size


def test_live_versions_move_to_other_cpus(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1], config=QUICK)})
    since = entry(host, "m", 1)["since"]
    assert host.process("eas", ONE).cpuset == ""
    with Clients(host) as clients:
        for cpu in (CPUS[0], CPUS[-1]) * 3:
            generation = state.desire({"m": model_of(scaled_models[1], config=QUICK, cpuset=str(cpu))})
            wait_for_status(host, lambda status: status["generation"] == generation)  # noqa: B023
            assert host.process("eas", ONE).cpuset == str(cpu)
            wait_until(lambda: set().union(*threads_named("session-").values()) == {cpu}, "the CPU")  # noqa: B023
            clients.wait_for_more(5)
        generation = state.desire({"m": model_of(scaled_models[1], config=QUICK, cpuset=str(CPUS[-1] + 1))})
        wait_for_status(host, lambda status: status["generation"] == generation)
        assert f"CPU {CPUS[-1] + 1}" in entry(host, "m", 1)["error"]
        clients.wait_for_more(5)
    assert clients.failures == []
    assert entry(host, "m", 1)["since"] == since
    assert entry(host, "m", 1)["cpuset"] == str(CPUS[-1])


def test_this_hosts_cpus_overrule_the_versions(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    hosts = {"host-0": {"cpusets": {"m/1": f"{CPUS[-1]}"}}, "host-1": {"cpusets": {"m/1": "99"}}}
    config = QUICK | {"session_num": 2}
    state.serve(host, {"m": model_of(scaled_models[1], config=config, cpuset=f"{CPUS[0]};{CPUS[0]}")}, hosts=hosts)
    assert entry(host, "m", 1)["cpuset"] == f"{CPUS[-1]};{CPUS[-1]}"


def test_serving_threads_do_not_use_the_maintenance_cpus(state: StateDirectory, scaled_models: dict[int, Path]) -> None:
    if len(CPUS) < 2:
        pytest.skip("needs two CPUs")
    config = {"intra_op_parallelism_threads": 3, "inter_op_parallelism_threads": 2, "executor": "default"}
    with processor.Host(state.path, maintenance_cpus=str(CPUS[0])) as host:
        state.serve(host, {"m": model_of(scaled_models[1], config=config)})
        host.process("eas", ONE)
        wait_until(lambda: len(threads_named("session-")) >= 5, "the threads of the session")
        # A thread sets its CPUs when it first runs.
        everywhere = {frozenset(CPUS)}
        wait_until(lambda: set(map(frozenset, threads_named("session-").values())) == everywhere, "threads everywhere")
    with processor.Host(state.path) as host:
        state.serve(host, {"m": model_of(scaled_models[1], config=config)})
        assert {os.sched_getscheduler(thread) for thread in threads_named("session-")} == {os.SCHED_OTHER}


def test_loading_and_unloading_leaves_nothing_behind(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1], 1, config=QUICK)})
    state.serve(host, {"m": model_of(scaled_models[2], 2, config=QUICK)})
    files, threads = num_fds(), len(threads_named(""))
    for number in range(3, 9):
        state.serve(host, {"m": model_of(scaled_models[1], number, config=QUICK)})
    wait_until(lambda: len(threads_named("")) <= threads, "threads that end")
    wait_until(lambda: num_fds() <= files, "files that are closed")  # one is open while the host writes its status
    state.serve(host, {})
    wait_for_status(host, lambda status: status["models"] == {})
