# SPDX-License-Identifier: Apache-2.0
"""What a host does with a desired.json that is wrong in part or as a whole, also after a restart."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.state_directory import StateDirectory, entry, model_of, wait_for_status
from helpers.models import model_builders
from helpers.system.waiting import wait_until

X = np.array([[1.0, 2.0, 3.0]], np.float32)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return model_builders.build_linear(tmp_path / "other", 2.0)


def ask(host: processor.Host, model: str = "m", version: int = 0) -> tuple[int, Any]:
    answer = host.process("eas", encode({"x": X}), model_name=model, model_version=version)
    return answer.model_version, decode(answer.data)["y"]


def served(host: processor.Host, model: str = "m") -> int:
    version, y = ask(host, model)
    np.testing.assert_array_equal(y, model_builders.linear_score(X, 1.0 if version == 1 else 2.0))
    return version


BAD = [
    ({"config": {"cpusets": "0;1"}}, "config.cpusets"),
    ({"config": {"savedmodel_dir": "/x"}}, "config.savedmodel_dir"),
    ({"config": {"session_num": 0}}, "config key 'session_num': 0 found, expected an integer from 1"),
    ({"config": {"not_a_key": 1}}, "config key 'not_a_key': unknown"),
    ({"config": {"batching": {"mode": "timed"}}}, "config.batching"),
    ({"batching": {"mode": "timed", "max_wait_us": 20_000_000}}, "batching.max_wait_us: 20000000 found"),
    ({"priority": "high"}, 'priority: "high" found'),
    ({"surprise": 1}, "surprise: unknown key"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD, ids=[message.split(":")[0] for _, message in BAD])
def test_a_faulty_version_entry_fails_only_that_version(
    host: processor.Host, state: StateDirectory, tiny_model: Path, other: Path, wrong: dict[str, Any], message: str
) -> None:
    state.serve(host, {"m": model_of(tiny_model)})
    versions = {"1": {"path": str(tiny_model)}, "2": {"path": str(other)} | wrong}
    arms = [{"version": 2, "offset": 0, "weight": 10000}]
    models = {"m": {"baseline": 1, "versions": versions, "routing": {"arms": arms}}, "n": model_of(other, 2)}
    generation = state.desire(models)
    wait_for_status(host, lambda status: status["generation"] == generation and "n" in status["models"])
    wait_for_status(host, lambda status: status["models"]["n"]["versions"]["2"]["state"] == "ready")
    status = host.status()
    assert (status["state"], status["desired_error"]) == ("ready", None)
    wait_for_status(host, lambda _: entry(host, "m", 2)["state"] == "failed")
    bad = entry(host, "m", 2)
    assert "desired.json: models.m.versions.2" in bad["error"]
    assert message in bad["error"]
    assert served(host) == 1, "its share goes to the baseline"
    with pytest.raises(processor.UnavailableError, match="version 2 is failed"):
        ask(host, version=2)
    # Mended, it is loaded; and what is taken out takes its failure along.
    state.serve(host, {"m": models["m"] | {"versions": {"1": versions["1"], "2": {"path": str(other)}}}})
    assert served(host) == 2
    state.serve(host, {"m": model_of(tiny_model)})


def test_faulty_settings_leave_a_serving_version_unchanged(
    host: processor.Host, state: StateDirectory, tiny_model: Path
) -> None:
    state.serve(host, {"m": model_of(tiny_model, priority=3)})
    generation = state.desire({"m": model_of(tiny_model, priority=3, config={"session_num": 0}, traffic=False)})
    wait_for_status(host, lambda status: status["generation"] == generation)
    wait_for_status(host, lambda _: (entry(host, "m", 1)["replacement"] or {}).get("state") == "failed")
    found = entry(host, "m", 1)
    assert found["state"] == "ready"
    assert "session_num" in found["replacement"]["error"]
    assert served(host) == 1
    assert ask(host, version=1)[0] == 1
    state.serve(host, {"m": model_of(tiny_model, priority=4)})


def test_a_faulty_model_entry_leaves_the_model_unchanged_and_others_are_followed(
    host: processor.Host, state: StateDirectory, tiny_model: Path, other: Path
) -> None:
    state.serve(host, {"m": model_of(tiny_model), "n": model_of(tiny_model)})
    wrong = model_of(other, 2) | {"labels": {"next": 9}}
    generation = state.desire({"m": wrong, "n": model_of(other, 2), "new": wrong})
    wait_for_status(host, lambda status: status["generation"] == generation and list(status["models"]) == ["m", "n"])
    wait_for_status(host, lambda status: list(status["models"]["n"]["versions"]) == ["2"])
    assert (served(host, "m"), served(host, "n")) == (1, 2)
    error = host.status()["desired_error"]
    assert "models.m.labels.next: 9 found" in error
    assert "models.new.labels.next: 9 found" in error
    assert host.status()["state"] == "ready"
    with processor.Host(state.path, "host-1") as late:
        wait_for_status(late, lambda status: status["state"] == "ready")
        assert list(late.status()["models"]) == ["n"], "a host that never knew better"
    host.close()
    with processor.Host(state.path) as again:
        wait_for_status(again, lambda status: status["state"] == "ready")
        assert (served(again, "m"), served(again, "n")) == (1, 2), "the same after a restart"
        state.serve(again, {"m": model_of(other, 2), "n": model_of(other, 2)})
        assert again.status()["desired_error"] is None


REFUSED = [
    "{",
    "[]",
    '{"schema": 2, "generation": 9, "models": {}}',
    '{"schema": 1, "generation": 1e400, "models": {}}',
    "[" * 100_000,
    '{"schema": 1, "schema": 1}',
    "",
]


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_a_refused_file_changes_nothing_even_after_a_restart(
    state: StateDirectory, tiny_model: Path, other: Path, text: str
) -> None:
    with processor.Host(state.path) as host:
        state.serve(host, {"m": model_of(tiny_model)})
        state.write(text)
        wait_for_status(host, lambda status: status["desired_error"] is not None)
        assert host.status()["state"] == "ready"
        assert served(host) == 1
    with processor.Host(state.path) as host:
        wait_for_status(host, lambda status: status["state"] == "ready")
        assert served(host) == 1
        assert "the previous desired state is still followed" in host.status()["desired_error"]
        state.serve(host, {"m": model_of(other, 2)})
        assert served(host) == 2
        assert host.status()["desired_error"] is None
    (state.path / "desired.json").unlink()
    with processor.Host(state.path) as host:
        wait_for_status(host, lambda status: status["state"] == "ready")
        assert served(host) == 2, "also where the file is gone"
        assert "No such file" in host.status()["desired_error"]


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_a_host_that_never_accepted_anything_is_not_ready(state: StateDirectory, tiny_model: Path, text: str) -> None:
    state.write(text)
    with processor.Host(state.path) as host:
        wait_for_status(host, lambda status: status["desired_error"] is not None)
        time.sleep(0.5)
        assert host.status()["state"] == "starting"
        state.serve(host, {"m": model_of(tiny_model)})
        assert host.status()["state"] == "ready"


def test_a_damaged_accepted_state_is_ignored(state: StateDirectory, tiny_model: Path) -> None:
    folder = state.path / "hosts" / "host-0"
    folder.mkdir(parents=True)
    for text in ("", "{", '{"schema": 7}'):
        (folder / "accepted.json").write_text(text, encoding="utf-8")
        state.write("{")
        with processor.Host(state.path) as host:
            wait_for_status(host, lambda status: status["desired_error"] is not None)
            assert host.status()["state"] == "starting"
            state.serve(host, {"m": model_of(tiny_model)})
        assert json.loads((folder / "accepted.json").read_text(encoding="utf-8"))["models"]["m"]["baseline"] == 1
        (folder / "accepted.json").unlink()


class TestFiles:
    """Files that are others than those that were deployed."""

    def deployed(self, folder: Path) -> dict[str, Any]:
        from serving_proxy.gates.fingerprint import fingerprint

        found = fingerprint(folder, lambda: False, lambda done, total: None)
        return {"files": {"sha256": found.sha256, "seal": found.seal}}

    def test_a_changed_file_fails_the_version_with_both_hashes(
        self, state: StateDirectory, tmp_path: Path, other: Path
    ) -> None:
        changing = model_builders.build_linear(tmp_path / "changing", 1.0)
        deployed = self.deployed(changing)
        models = {"m": model_of(changing, **deployed), "n": model_of(other, 2, **self.deployed(other))}
        with processor.Host(state.path) as host:
            state.serve(host, models)
            assert served(host) == 1
        record = state.path / "hosts" / "host-0" / "verified_files.json"
        assert not record.exists(), "the seal that Python made is the one that the host finds: nothing was read"
        # What was trained later is written over it, with the times of what was there.
        later = model_builders.build_linear(tmp_path / "later", 2.0)
        for file in later.rglob("*"):
            if file.is_file():
                place = changing / file.relative_to(later)
                times = place.stat()
                place.write_bytes(file.read_bytes())
                os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
        found = self.deployed(changing)["files"]["sha256"]
        with processor.Host(state.path) as host:
            wait_for_status(host, lambda status: status["models"]["m"]["versions"]["1"]["state"] == "failed")
            wait_for_status(host, lambda status: status["models"]["n"]["versions"]["2"]["state"] == "ready")
            assert served(host, "n") == 2
            error = entry(host, "m", 1)["error"]
            assert f"SHA-256 {found} found, expected {deployed['files']['sha256']}" in error
            with pytest.raises(processor.UnavailableError):
                ask(host)

    def test_files_that_were_copied_are_read_once(
        self, state: StateDirectory, tmp_path: Path, tiny_model: Path
    ) -> None:
        files = self.deployed(tiny_model)["files"] | {"seal": "0" * 64}
        record = state.path / "hosts" / "host-0" / "verified_files.json"
        for _ in range(2):
            with processor.Host(state.path) as host:
                state.serve(host, {"m": model_of(tiny_model, files=files)})
                assert served(host) == 1
            wait_until(record.exists, "a record of what was read")
            assert json.loads(record.read_bytes())[str(tiny_model.resolve())][1] == files["sha256"]
