# SPDX-License-Identifier: Apache-2.0
"""The keys of the configuration: what is accepted, what is refused and how, and what each does to a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts import deeprec_abi
from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import NOTICE, DropInModel, captured_log, drop_in_config, load, refusal
from helpers.models import model_builders

X = np.array([[1, 2, 3]], np.float32)
ONE = encode({"x": X})
CPUS = sorted(os.sched_getaffinity(0))
REQUIRED = ("signature_name", "savedmodel_dir", "feature_store_type", "serialize_protocol", "model_store_type")
MAY_BE_EMPTY = ("savedmodel_dir", "model_store_type")

# Every key that is not required: values that are accepted without a word, accepted with a notice, and refused.
BIG = 2**63
NOT_A_STRING = (1, True, [], {}, 1.5)
NOT_A_BOOL = ("true", 2, -1, 1.0, [], {})
NOT_AN_INTEGER = ("4", 1.0, True, [], {}, BIG, -BIG - 1, 1e300)
KEYS: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
    # The contract's
    "checkpoint_dir": ([""], [], [*NOT_A_STRING]),
    "session_num": ([1, 2, 3], [], [0, -1, 1025, *NOT_AN_INTEGER]),
    "select_session_policy": (["MOD", "RR", "LEAST_LOADED"], [], ["", "rr", "RANDOM", *NOT_A_STRING]),
    "use_per_session_threads": ([False, True, 0, 1], [], [*NOT_A_BOOL]),
    "cpusets": (["", f"{CPUS[0]}"], [], ["x", *NOT_A_STRING]),
    "inter_op_parallelism_threads": ([-1, 0, 1, 2], [], [-2, 4097, *NOT_AN_INTEGER]),
    "intra_op_parallelism_threads": ([0, 1, 2], [], [-1, 4097, *NOT_AN_INTEGER]),
    "omp_num_threads": ([], [1, 4], [-2, 2**31, *NOT_AN_INTEGER]),
    "kmp_blocktime": ([], [0, 200], [-2, *NOT_AN_INTEGER]),
    "enable_inline_execute": ([False, True], [], [*NOT_A_BOOL]),
    "gpu_ids_list": ([""], [], ["0", "0,1", *NOT_A_STRING]),
    "use_multi_stream": ([False, 0], [], [True, 1, *NOT_A_BOOL]),
    "enable_device_placement_optimization": ([False], [], [True, *NOT_A_BOOL]),
    "model_update_inter_threads": ([0, 4], [], [-1, 4097, *NOT_AN_INTEGER]),
    "model_update_intra_threads": ([0, 4], [], [-1, 4097, *NOT_AN_INTEGER]),
    "init_timeout_minutes": ([-1, 0], [], [-2, 2**21, *NOT_AN_INTEGER]),
    "warmup_file_name": ([""], [], [*NOT_A_STRING]),
    "lock_timeout": ([900], [60], [-1, *NOT_AN_INTEGER]),
    "redis_url": ([""], [], ["redis://127.0.0.1", *NOT_A_STRING]),
    "redis_password": ([""], [], ["secret", *NOT_A_STRING]),
    "read_thread_num": ([4], [1, 96], [0, 97, *NOT_AN_INTEGER]),
    "update_thread_num": ([2], [1, 16], [0, 17, *NOT_AN_INTEGER]),
    "oss_endpoint": ([""], [], ["oss.example", *NOT_A_STRING]),
    "oss_access_id": ([""], [], ["id", *NOT_A_STRING]),
    "oss_access_key": ([""], [], ["secret", *NOT_A_STRING]),
    "timeline_start_step": ([0, 10**12], [], [-1, *NOT_AN_INTEGER]),
    "timeline_interval_step": ([1, 10**12], [], [0, -1, *NOT_AN_INTEGER]),
    "timeline_trace_count": ([1, 10**6], [], [0, 10**6 + 1, *NOT_AN_INTEGER]),
    "timeline_path": (["/nowhere"], [], ["", "nowhere", "oss://bucket", "/oss://bucket", *NOT_A_STRING]),
    "ev_storage_type": ([0, 1], [], [12, 2, -1, *NOT_AN_INTEGER]),
    "ev_storage_path": ([""], [], ["/ssd", *NOT_A_STRING]),
    "ev_storage_size": ([], [[], [1 << 30] * 4], ["1", 1, {}, ["1"], [1, -1], [1.5]]),
    "shard_embedding": ([False], [], [True, *NOT_A_BOOL]),
    "embedding_names": ([], ["a;b"], [*NOT_A_STRING]),
    "shard_instance_count": ([], [0, 4], [-1, *NOT_AN_INTEGER]),
    "id_type": ([], ["string", "int64"], ["", "int32", *NOT_A_STRING]),
    # Ours
    "follow": ([""], [], ["deltas", *NOT_A_STRING]),
    "follow_store": ([""], [], ["copies", "/copies", *NOT_A_STRING]),
    "follow_permit_not_finite": ([False, True], [], [*NOT_A_BOOL]),
    "follow_epoch": ([], [], [0, -1, *NOT_AN_INTEGER]),
    "execution": (["inline", "pinned"], [], ["", "Inline", "thread", *NOT_A_STRING]),
    "worker_threads": ([1, 2], [], [0, 4097, *NOT_AN_INTEGER]),
    "max_queue_size": ([1, 4096], [], [0, -5, *NOT_AN_INTEGER]),
    "executor": (["auto", "single_threaded", "default"], [], ["", "xla", *NOT_A_STRING]),
    "precision": (["auto", "bf16", "fp32"], [], ["", "int8", *NOT_A_STRING]),
    "warmup_runs": ([1, 7], [], [0, 1001, *NOT_AN_INTEGER]),
    "checkpoint_poll_seconds": ([0.01, 60, 1e9], [], [0, -1, 1e10, "60", True, []]),
    "load_timeout_seconds": ([0, 0.5, 1e6], [], [-1, 1e7, "60", True, []]),
    "drain_seconds": ([0, 0.5, 3600], [], [-1, 3601, "60", True, []]),
    "max_rows": ([1, 1 << 32], [], [0, -1, (1 << 32) + 1, *NOT_AN_INTEGER]),
    "batch_process_count": ([1, 100], [], [0, -1, 2**21, *NOT_AN_INTEGER]),
    "model_name": (["", "ranking"], [], [*NOT_A_STRING]),
    "batching": (
        [{}, {"mode": "off"}, {"mode": "timed", "max_rows": 8, "max_wait_us": 0}],
        [],
        [1, "off", [], {"mode": "on"}, {"max_rows": 0}, {"max_wait_us": -1}, {"max_bytes": 1}],
    ),
    "tables": (
        [
            *({}, {"tier": "mapped"}, {"tier": "tiered", "memory": "1.5GB"}, {"tier": "tiered", "memory": 1}),
            *({"tier": "resident"}, {"tier": "resident", "share_folder": "/run/x"}),
            {"tier": "tiered", "memory": "4GB", "early_reads": False},
        ],
        [],
        [
            *(1, "tiered", [], {"tier": "disk"}, {"tier": "tiered"}, {"memory": "4GB"}, {"size": 1}),
            *({"tier": "resident", "memory": "4GB"}, {"tier": "resident", "share_folder": "x"}, {"share_folder": "/x"}),
            *({"early_reads": True}, {"tier": "tiered", "memory": 1, "early_reads": 1}),
            *({"tier": "tiered", "memory": memory} for memory in ("4", "GB", "-1GB", "4gb", "nanGB", 0, 1.5, "1e99GB")),
        ],
    ),
    "model_version": ([0, 7, BIG - 1], [], [-1, *NOT_AN_INTEGER]),
}
# What a key cannot be without.
TIMELINE = {
    "timeline_start_step": 0,
    "timeline_interval_step": 1,
    "timeline_trace_count": 1,
    "timeline_path": "/nowhere",
}


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder that is not there: a configuration that was accepted ends in NOT_FOUND for it, and costs no load."""
    return str(tmp_path_factory.mktemp("nowhere") / "model")


def outcome(config: Any, path: str) -> tuple[str, list[str]]:
    """Return what became of a configuration, "" if it was accepted, and the notices that it gave."""
    with captured_log(NOTICE) as lines:
        handle, state = deeprec_abi.initialize(config)
    assert (handle, state) == (None, -1)
    reason = lines[-1].text
    assert lines[-1].severity == deeprec_abi.ERROR
    accepted = reason == f"initialize failed: NOT_FOUND: savedmodel_dir '{path}': no such folder"
    return "" if accepted else reason, [line.text for line in lines[:-1]]


def test_every_documented_key_is_tried() -> None:
    document = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1].partition(".")[0] for line in document.splitlines() if line.startswith("| `")}
    assert rows == {*REQUIRED, *KEYS}


# What is accepted, and what is refused


@pytest.mark.parametrize("key", KEYS)
def test_valid_values_are_accepted_and_others_refused(key: str, nowhere: str) -> None:
    silent, noted, refused = KEYS[key]
    base = drop_in_config(nowhere, **(TIMELINE if key in TIMELINE else {}))
    for value in silent:
        assert outcome(base | {key: value}, nowhere) == ("", []), value
    for value in noted:
        reason, notices = outcome(base | {key: value}, nowhere)
        assert reason == ""
        assert len(notices) == 1
        assert notices[0].startswith(f"config key '{key}': accepted without effect: ")
    for value in refused:
        reason, _ = outcome(base | {key: value}, nowhere)
        assert reason.startswith(f"initialize failed: INVALID_ARGUMENT: config key '{key}': "), (value, reason)
    if key not in TIMELINE:
        assert outcome(base | {key: None}, nowhere) == ("", [])  # null: as if absent


@pytest.mark.parametrize("key", TIMELINE)
def test_timeline_keys_are_all_or_none(key: str, nowhere: str) -> None:
    others = {name: value for name, value in TIMELINE.items() if name != key}
    reason, _ = outcome(drop_in_config(nowhere, **others), nowhere)
    assert reason == (
        f"initialize failed: INVALID_ARGUMENT: config key '{key}': missing, expected all four of timeline_* or none"
    )


@pytest.mark.parametrize("key", REQUIRED)
def test_missing_required_keys_are_refused(key: str, nowhere: str, tiny_model: Path) -> None:
    config = drop_in_config(nowhere)
    for missing in ({k: v for k, v in config.items() if k != key}, config | {key: None}):
        assert refusal(missing).startswith(f"initialize failed: NOT_FOUND: config key '{key}': ")
    for value in NOT_A_STRING:
        assert refusal(config | {key: value}).startswith(f"initialize failed: INVALID_ARGUMENT: config key '{key}': ")
    if key in MAY_BE_EMPTY:
        with DropInModel(entry=str(tiny_model), **(drop_in_config(tiny_model) | {key: ""})) as model:
            assert model.process(ONE).status == 200
    else:
        reason = refusal(config | {key: ""})
        assert reason == f"initialize failed: INVALID_ARGUMENT: config key '{key}': empty, expected a value"


def test_modern_abi_requires_nothing(tiny_model: Path) -> None:
    assert load(tiny_model) == ("OK", "")
    assert load(tiny_model, {}) == ("OK", "")
    assert load(None, {"savedmodel_dir": str(tiny_model)}) == ("OK", "")
    assert load(tiny_model, drop_in_config("")) == ("OK", "")
    assert load(tiny_model, {"session_num": 0})[0] == "INVALID_ARGUMENT"
    assert load(tiny_model, {"color": 1}) == (
        "INVALID_ARGUMENT",
        "config key 'color': unknown; docs/configuration.md lists the keys",
    )


@pytest.mark.parametrize("store", ["local", "memory"])
def test_both_spellings_of_the_local_store_are_accepted(store: str, tiny_model: Path) -> None:
    with DropInModel(tiny_model, feature_store_type=store) as model:
        assert model.process(ONE).status == 200


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("feature_store_type", "redis", "no Redis client"),
        ("feature_store_type", "cluster_redis", "no Redis client"),
        ("feature_store_type", "disk", 'expected "local" or "memory"'),
        ("serialize_protocol", "flatbuffer", 'expected "protobuf"'),
        ("serialize_protocol", "json", 'expected "protobuf"'),
        ("model_store_type", "oss", "local folders"),
        ("model_store_type", "hdfs", "local folders"),
        ("model_store_type", "s3", 'expected "local"'),
        ("redis_url", "redis://127.0.0.1", "no Redis client"),
        ("oss_access_key", "s3cr3t", "local folders"),
        ("gpu_ids_list", "0,1", "serves on CPUs"),
        ("use_multi_stream", True, "serves on CPUs"),
        ("enable_device_placement_optimization", True, "serves on CPUs"),
        ("ev_storage_type", 12, "DRAM_SSDHASH"),
        ("shard_embedding", True, "served whole by one process"),
        ("session_num", 0, "0 found, expected an integer from 1 to 1024"),
        ("select_session_policy", "FIFO", '"FIFO" found, expected one of "MOD", "RR", "LEAST_LOADED"'),
    ],
)
def test_refusals_say_why(key: str, value: Any, why: str, nowhere: str) -> None:
    reason = refusal(drop_in_config(nowhere, **{key: value}))
    assert f"config key '{key}': " in reason
    assert why in reason


@pytest.mark.parametrize("key", ["redis_password", "oss_access_key", "oss_access_id", "redis_url"])
def test_secrets_are_not_logged(key: str, nowhere: str) -> None:
    assert "s3cr3t" not in refusal(drop_in_config(nowhere, **{key: "s3cr3t"}))


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        *((key, key) for key in ("color", "Session_num", "session_num ", "", "redis_db_idx", "\u00fc")),
        ("enable_incr_model_update", "enable_incr_model_update"),
        ("a\n\x00z", "a\\n\\x00z"),
        ("k" * 10_000, "k" * 100 + "..."),
    ],
)
def test_unknown_keys_are_refused_by_name(key: str, shown: str, nowhere: str) -> None:
    reason = refusal(drop_in_config(nowhere, **{key: 1}))
    text = "unknown; docs/configuration.md lists the keys"
    assert reason == f"initialize failed: INVALID_ARGUMENT: config key '{shown}': {text}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        '{"session_num": 1',
        "{'session_num': 1}",
        '{"session_num": 1,}',
        "null",
        "[]",
        '"text"',
        "7",
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 100_000 + "]" * 100_000,
        b'{"signature_name": "\xff\xfe"}',
        b"\x80\x81",
        "{} {}",
        '{"session_num": 1e99999}',
        "not json",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_malformed_json_is_refused(text: str | bytes) -> None:
    reason = refusal(text)
    assert reason.startswith("initialize failed: INVALID_ARGUMENT: config: "), reason
    assert len(reason) < 1200


def test_config_may_not_be_null() -> None:
    assert refusal(None).startswith("initialize failed: INVALID_ARGUMENT: model_config: NULL")


# What the keys do


def test_documented_defaults_apply(tiny_model: Path) -> None:
    config = {key: value for key, value in drop_in_config(tiny_model).items() if key in REQUIRED}
    handle, _ = deeprec_abi.initialize(config)
    model = DropInModel.of(handle)
    info = model.ask("info")
    assert info["sessions"] == 1
    assert info["select_session_policy"] == "MOD"
    assert info["execution"] == "inline"
    assert info["warmup"] == "generated: 5 runs on each session"
    assert info["checkpoint"] is None
    assert info["config"] == config
    assert model.batch([ONE])[0] == 200
    model.close()


@pytest.mark.parametrize(
    ("variable", "threads"), [(None, 4), ("16", 8), ("3", 1), ("1", 1), ("0", 4), ("many", 4), ("", 4)]
)
def test_threads_follow_schedulable_cpus(
    variable: str | None, threads: int, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDULABLE_CPUS", raising=False)
    if variable is not None:
        monkeypatch.setenv("SCHEDULABLE_CPUS", variable)
    with DropInModel(tiny_model, inter_op_parallelism_threads=None, intra_op_parallelism_threads=None) as model:
        assert model.ask("info")["intra_op_threads"] == threads
    with DropInModel(tiny_model, intra_op_parallelism_threads=2) as model:
        assert model.ask("info")["intra_op_threads"] == 2


def test_zero_threads_are_those_of_the_process(tiny_model: Path) -> None:
    with DropInModel(tiny_model, intra_op_parallelism_threads=0) as model:
        assert model.ask("info")["intra_op_threads"] == len(CPUS)


def spread(model: DropInModel, calls: int) -> list[int]:
    for _ in range(calls):
        assert model.process(ONE).status == 200
    return [session["requests"] for session in model.ask("stats")["sessions"]]


def test_policies_choose_the_session(tiny_model: Path) -> None:
    with DropInModel(tiny_model, session_num=3, select_session_policy="RR") as model:
        assert spread(model, 9) == [3, 3, 3]
    with DropInModel(tiny_model, session_num=3) as model:
        assert sorted(spread(model, 9)) == [0, 0, 9]  # MOD: a thread stays
    with DropInModel(tiny_model, session_num=3, select_session_policy="LEAST_LOADED") as model:
        assert spread(model, 9) == [3, 3, 3]  # all idle


@pytest.mark.parametrize("executor", ["single_threaded", "default"])
def test_executor_is_that_of_the_configuration(executor: str, tiny_model: Path) -> None:
    with DropInModel(tiny_model, executor=executor) as model:
        assert model.ask("info")["executor"] == executor
        np.testing.assert_allclose(decode(model.process(ONE).data or b"")["y"], model_builders.linear_score(X))


@pytest.mark.parametrize(
    "keys",
    [
        {"enable_inline_execute": True},
        {"use_per_session_threads": True, "session_num": 2, "executor": "default"},
        {"inter_op_parallelism_threads": 2, "executor": "default"},
        {"inter_op_parallelism_threads": -1, "executor": "default"},
        {"execution": "pinned", "worker_threads": 2, "session_num": 2},
    ],
    ids=str,
)
def test_all_ways_to_run_give_the_same_scores(keys: dict[str, Any], tiny_model: Path) -> None:
    with DropInModel(tiny_model, **keys) as model:
        for _ in range(3):
            np.testing.assert_allclose(decode(model.process(ONE).data or b"")["y"], model_builders.linear_score(X))


def test_too_many_inter_op_threads_are_refused(tiny_model: Path) -> None:
    keys: dict[str, Any] = {"session_num": 3, "inter_op_parallelism_threads": 1500, "intra_op_parallelism_threads": 1}
    reason = refusal(drop_in_config(tiny_model, executor="default", **keys))
    assert "'inter_op_parallelism_threads': 1500 found for each of 3 sessions" in reason
    with DropInModel(tiny_model, **keys) as model:  # the library's own executor starts none
        assert model.process(ONE).status == 200


def test_version_and_name_are_in_the_information(tiny_model: Path, make_linear_model: Any, tmp_path: Path) -> None:
    with DropInModel(tiny_model) as model:
        assert model.ask("info")["version"] is None
    with DropInModel(tiny_model, model_version=12) as model:
        assert model.ask("info")["version"] == 12
    with DropInModel(make_linear_model(tmp_path / "7")) as model:
        assert model.ask("info")["version"] == 7


def test_notices_do_not_keep_a_model_from_serving(tiny_model: Path) -> None:
    keys = {"omp_num_threads", "kmp_blocktime", "lock_timeout", "read_thread_num"}
    with DropInModel(tiny_model, **dict.fromkeys(keys, 1)) as model:
        assert model.process(ONE).status == 200
        assert {line.severity for line in model.log} == {NOTICE}
        assert {line.text.split("'")[1] for line in model.log} == keys
        assert len(model.log) == len(keys)
