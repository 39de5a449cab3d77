# SPDX-License-Identifier: Apache-2.0
"""Base directories and configuration files, followed as they change."""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from serving_proxy import Client
from serving_proxy.deploy.operations import Operations
from serving_proxy.errors import ExhaustedError, InvalidError, NotFoundError, PreconditionError
from serving_proxy.sources import watcher


def config(base: Path, policy: str = "", labels: str = "", name: str = "ranking") -> str:
    return f'model_config_list {{ config {{ name: "{name}" base_path: "{base}" {policy} {labels} }} }}'


def replace(file: Path, text: str) -> None:
    """Write a file at once: what is half-written is read as well."""
    draft = file.with_name("draft")
    draft.write_text(text, encoding="utf-8")
    draft.rename(file)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the base directory `base`, version 3 in it, and the file `models.config`."""
    monkeypatch.setattr(watcher, "POLL_S", 0.05)
    write_model(tmp_path / "base" / "3")
    (tmp_path / "models.config").write_text(config(tmp_path / "base"), encoding="utf-8")
    return tmp_path


@pytest.fixture
def proxy(place: Path) -> Iterator[ProxyThread]:
    with ProxyThread(place, "--config", str(place / "models.config"), "--model-root", str(place)) as running:
        yield running


def model(client: Client, name: str = "ranking") -> dict[str, Any]:
    found = [model for model in client.status()["models"] if model["name"] == name]
    return found[0] if found else {"baseline": None, "versions": [], "last_good": None}


def states(client: Client) -> dict[int, str]:
    return {version["version"]: version["state"] for version in model(client)["versions"]}


def becomes(found: Callable[[], Any], expected: Any) -> None:
    wait_for(lambda: found() == expected, what=f"{expected}, not {found()}")


def said(client: Client) -> list[str]:
    return [event["message"] for event in client.events(limit=1000) if event["kind"] == "config"]


def test_the_latest_version_is_followed_and_the_last_kept_warm(proxy: ProxyThread, client: Client, place: Path) -> None:
    becomes(lambda: states(client), {3: "ready"})
    write_model(place / "base" / "4")
    becomes(lambda: (model(client)["baseline"], model(client)["last_good"]), (4, 3))
    assert proxy.desired()["models"]["ranking"]["versions"]["3"]["traffic"] is False
    write_model(place / "base" / "5")
    becomes(lambda: states(client), {4: "ready", 5: "ready"})
    assert model(client)["policy"] == "latest 1"


def test_every_version_that_the_policy_chooses_answers(proxy: ProxyThread, client: Client, place: Path) -> None:
    policy = "model_version_policy { latest { num_versions: 2 } }"
    (place / "models.config").write_text(config(place / "base", policy), encoding="utf-8")
    write_model(place / "base" / "4")

    def without_traffic() -> list[str]:
        versions = proxy.desired()["models"]["ranking"]["versions"]
        return [number for number, version in versions.items() if version.get("traffic", True) is False]

    becomes(lambda: (model(client)["baseline"], model(client)["last_good"]), (4, 3))
    becomes(without_traffic, [])
    shutil.rmtree(place / "base" / "4")
    write_model(place / "base" / "2")
    time.sleep(10 * watcher.POLL_S)
    assert (model(client)["baseline"], states(client)) == (4, {3: "ready", 4: "ready"})
    write_model(place / "base" / "5")
    becomes(lambda: model(client)["baseline"], 5)
    client.rollback("ranking")
    assert model(client)["baseline"] == 4


def test_unserved_folders_are_reported(client: Client, place: Path) -> None:
    """TensorFlow Serving serves a version 0, which no request can name here, and warns about an empty base path."""
    becomes(lambda: states(client), {3: "ready"})
    write_model(place / "base" / "0")
    (place / "base" / "4" / "model.savedmodel").mkdir(parents=True)
    wait_for(lambda: any(message.startswith(f"ranking: {place}/base/0 is not a version") for message in said(client)))
    wait_for(lambda: f"ranking: {place}/base/4 has no saved_model.pb yet" in said(client))
    assert states(client) == {3: "ready"}
    (place / "empty").mkdir()
    (place / "models.config").write_text(config(place / "empty", name="other"), encoding="utf-8")
    wanted = f"other: no version in {place}/empty, expected one such as {place}/empty/1/saved_model.pb"
    wait_for(lambda: wanted in said(client))
    assert [message for message in said(client) if message.startswith(f"ranking: {place}/base/0")][1:] == [], "once"


def test_what_serves_stays_when_the_directory_vanishes(client: Client, place: Path) -> None:
    becomes(lambda: states(client), {3: "ready"})
    (place / "base").rename(place / "away")
    wait_for(lambda: any("cannot be read; the served versions stay" in message for message in said(client)))
    (place / "base").mkdir()
    write_model(place / "base" / "nothing")
    shutil.rmtree(place / "away")
    events = client.status()["last_event"]
    write_model(place / "base" / "7")
    becomes(lambda: model(client)["baseline"], 7)
    assert states(client)[3] == "ready"
    assert client.status()["last_event"] > events


def test_a_version_that_was_rolled_back_is_not_followed_again(client: Client, place: Path) -> None:
    becomes(lambda: states(client), {3: "ready"})
    write_model(place / "base" / "4")
    becomes(lambda: model(client)["baseline"], 4)
    client.rollback("ranking")
    assert model(client)["baseline"] == 3
    write_model(place / "base" / "5")
    becomes(lambda: model(client)["baseline"], 5)


def test_a_broken_version_is_retried_once_its_files_change(client: Client, place: Path) -> None:
    becomes(lambda: states(client), {3: "ready"})
    (place / "new").mkdir()
    (place / "new" / "saved_model.pb").write_bytes(b"\xff")
    (place / "new").rename(place / "base" / "4")
    becomes(lambda: states(client), {3: "ready", 4: "failed"})
    assert model(client)["baseline"] == 3
    write_model(place / "base" / "4")
    becomes(lambda: (states(client), model(client)["baseline"]), ({3: "ready", 4: "ready"}, 4))


def test_the_configuration_is_read_again_when_it_changes(client: Client, place: Path) -> None:
    becomes(lambda: states(client), {3: "ready"})
    write_model(place / "base" / "4")
    policy = "model_version_policy { specific { versions: 3 versions: 4 } }"
    labels = 'version_labels { key: "stable" value: 3 }'
    (place / "models.config").write_text(config(place / "base", policy, labels), encoding="utf-8")
    becomes(lambda: (states(client), model(client).get("labels")), ({3: "ready", 4: "ready"}, {"stable": 3}))
    (place / "models.config").write_text("model_config_list {", encoding="utf-8")
    wait_for(lambda: any("the earlier content stays in force" in message for message in said(client)))
    (place / "models.config").write_text("", encoding="utf-8")
    wait_for(
        lambda: any("no model_config_list; the earlier content stays in force" in message for message in said(client))
    )
    assert states(client) == {3: "ready", 4: "ready"}
    (place / "models.config").write_text(config(place / "base", name="other"), encoding="utf-8")
    becomes(lambda: (states(client), model(client, "other")["baseline"]), ({}, 4))


def test_a_missing_configuration_is_waited_for(place: Path) -> None:
    """If the file is still being written when the proxy starts, no host is ready without models."""
    (place / "models.config").write_text("", encoding="utf-8")
    with ProxyThread(place, "--config", str(place / "models.config"), "--model-root", str(place)) as running:
        client = running.client()
        wait_for(
            lambda: any(
                "no model_config_list; the earlier content stays in force" in message for message in said(client)
            )
        )
        (place / "models.config").write_text(config(place / "base"), encoding="utf-8")
        becomes(lambda: states(client), {3: "ready"})


def test_a_configuration_is_applied_again_after_a_full_disk(
    client: Client, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    becomes(lambda: states(client), {3: "ready"})
    tried = []
    parse = watcher.parse_file

    def fail_twice(text: str, named: str) -> Any:
        tried.append(text)
        if len(tried) < 3:
            raise ExhaustedError("/: no space left on device")
        return parse(text, named)

    monkeypatch.setattr(watcher, "parse_file", fail_twice)
    write_model(place / "base" / "4")
    replace(place / "models.config", config(place / "base", name="other"))
    becomes(lambda: (states(client), model(client, "other")["baseline"]), ({}, 4))
    assert len(tried) == 3
    faults = [event["message"] for event in client.events(limit=1000) if event["kind"] == "fault"]
    assert faults == ["configuration: /: no space left on device; the proxy tries again"]


def test_configured_models_cannot_be_deployed_by_hand(client: Client, place: Path) -> None:
    becomes(lambda: states(client), {3: "ready"})
    with pytest.raises(
        PreconditionError, match=r"its versions come from .*, expected it to be removed from the configuration"
    ):
        client.undeploy("ranking")
    with pytest.raises(PreconditionError, match="expected the version in that directory"):
        client.deploy("ranking", write_model(place / "elsewhere" / "9"))


def test_a_reload_request_replaces_what_was_configured(client: Client, place: Path) -> None:
    becomes(lambda: states(client), {3: "ready"})
    client.deploy("hand", write_model(place / "hand" / "1"), wait=True)
    write_model(place / "two" / "1")
    text = config(place / "two", name="two")
    assert client.reload(text) == {"models": ["two"]}
    becomes(lambda: (states(client), model(client, "two")["baseline"]), ({}, 1))
    assert model(client, "hand")["baseline"] == 1
    with pytest.raises(PreconditionError, match="model 'hand': was deployed by hand"):
        client.reload(config(place / "two", name="hand"))
    for refused, said in (("nonsense {", "expected a ModelServerConfig"), ("", "expected a model_config_list")):
        with pytest.raises(InvalidError, match=said):
            client.reload(refused)
    assert model(client, "two")["baseline"] == 1


def test_a_base_directory_outside_the_roots_is_refused(client: Client) -> None:
    with pytest.raises(PermissionError, match="expected a path below --model-root"):
        client.reload(config(Path("/etc")))


def test_an_unreadable_configuration_prevents_the_start(place: Path) -> None:
    (place / "models.config").write_text("nonsense", encoding="utf-8")
    with pytest.raises(InvalidError, match="expected a ModelServerConfig"):
        ProxyThread(place, "--config", str(place / "models.config"), host="none").start()
    with pytest.raises(NotFoundError, match=r"gone: not there, expected a models\.config"):
        ProxyThread(place, "--config", str(place / "gone"), host="none").start()


def test_the_json_of_a_deeprec_processor_starts_a_proxy(place: Path) -> None:
    (place / "ctr.json").write_text(
        f'{{"savedmodel_dir": "{place / "base" / "3"}", "session_num": 2}}', encoding="utf-8"
    )
    with ProxyThread(place, "--config", str(place / "ctr.json")) as proxy, proxy.client() as client:
        becomes(lambda: model(client, "ctr")["baseline"], 3)
        wait_for(lambda: proxy.desired()["models"]["ctr"]["versions"]["3"]["config"] == {"session_num": 2})


@pytest.mark.parametrize("key", ["timeline_path", "ev_storage_path", "checkpoint_dir"])
def test_paths_of_a_configuration_must_be_below_the_roots(client: Client, place: Path, key: str) -> None:
    source = write_model(place / "hand" / "1")
    (place / "checkpoints").mkdir()
    (place / "checkpoints" / "escape").symlink_to("/etc/hostname")
    outside = str(place / "checkpoints") if key == "checkpoint_dir" else "/etc"
    with pytest.raises(PermissionError, match="expected a path below --model-root"):
        client.deploy("hand", source, config={key: outside})


def test_a_folder_without_a_graph_is_refused_at_once(client: Client, place: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no saved_model\.pb"):
        client.deploy("hand", place)


def test_one_bad_entry_stops_neither_the_start_nor_the_others(place: Path, tmp_path: Path) -> None:
    entries = [
        f'config {{ name: "ranking" base_path: "file://{place}/base" model_type: TENSORFLOW '
        'version_labels { key: "stable" value: 3 } }',
        'config { name: "team/ranking" base_path: "/models" }',
        'config { name: "outside" base_path: "/etc" }',
        f'config {{ name: "later" base_path: "{place}/later" }}',
    ]
    (place / "models.config").write_text(f"model_config_list {{ {' '.join(entries)} }}", encoding="utf-8")
    options = ("--config", str(place / "models.config"), "--model-root", str(place))
    with ProxyThread(place, *options) as proxy, proxy.client() as client:
        becomes(lambda: states(client), {3: "ready"})
        told = said(client)
        assert any("model 'team/ranking': expected letters" in message for message in told)
        assert "team/ranking" in {event["model"] for event in client.events(limit=1000)}
        assert not any("is configured but not in" in message for message in told), "before it is there"
        assert any(message.startswith("base_path /etc: outside of the permitted folders") for message in told)
        wait_for(lambda: any(f"later: {place}/later cannot be read" in message for message in said(client)))
        # It is served as soon as it is there.
        write_model(place / "later" / "1")
        wait_for(lambda: [version["state"] for version in model(client, "later")["versions"]] == ["ready"])
        # An entry that turns bad leaves what it said before.
        bad = f'config {{ name: "ranking" base_path: "ftp://bucket" }} {entries[3]}'
        (place / "models.config").write_text(f"model_config_list {{ {bad} }}", encoding="utf-8")
        wait_for(lambda: any("has base_path 'ftp://bucket'" in message for message in said(client)))
        assert states(client) == {3: "ready"}


def test_models_of_a_configuration_have_settings_of_their_own(place: Path) -> None:
    file = place / "settings.json"

    def write(**settings: Any) -> None:
        replace(file, json.dumps(settings))

    write(
        defaults={"config": {"session_num": 2}, "batching": {"mode": "zero_wait", "max_rows": 64}},
        models={"ranking": {"config": {"omp_num_threads": 1}, "priority": 3}},
    )
    options = ("--config", str(place / "models.config"), "--model-settings", str(file))
    with ProxyThread(place, *options) as proxy, proxy.client() as client:
        becomes(lambda: states(client), {3: "ready"})

        def entry() -> dict[str, Any]:
            found: dict[str, Any] = proxy.desired()["models"]["ranking"]["versions"]["3"]
            return found

        assert entry()["config"] == {"session_num": 2, "omp_num_threads": 1}
        assert (entry()["batching"]["mode"], entry()["batching"]["max_rows"]) == ("zero_wait", 64)
        # What is taken out of the file is gone, and what is wrong changes nothing.
        write(models={"ranking": {"config": {"session_num": 3}}})
        wait_for(lambda: entry().get("config") == {"session_num": 3} and "batching" not in entry())
        write(models={"ranking": {"sessions": 4}})
        wait_for(lambda: any("models.ranking.sessions: unknown member found" in message for message in said(client)))
        assert entry()["config"] == {"session_num": 3}
    file.write_text("{", encoding="utf-8")
    with pytest.raises(InvalidError, match=r"no JSON found .*, expected JSON"):
        ProxyThread(place / "another", *options, host="none").start()


def test_settings_are_applied_again_after_a_full_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place / "settings.json"
    file.write_text('{"defaults": {"config": {"session_num": 2}}}', encoding="utf-8")
    options = ("--config", str(place / "models.config"), "--model-settings", str(file))
    tried = []
    deploy = Operations.deploy

    async def fail_twice(self: Operations, *args: Any, **more: Any) -> Any:
        tried.append(args)
        if len(tried) < 3:
            raise ExhaustedError("/: no space left on device")
        return await deploy(self, *args, **more)

    with ProxyThread(place, *options) as proxy, proxy.client() as client:
        becomes(lambda: states(client), {3: "ready"})
        monkeypatch.setattr(Operations, "deploy", fail_twice)
        replace(file, '{"defaults": {"config": {"session_num": 3}}}')
        version = ("models", "ranking", "versions", "3", "config", "session_num")
        becomes(lambda: functools.reduce(lambda found, key: found[key], version, proxy.desired()), 3)
        told = [event["message"] for event in client.events(limit=1000) if event["kind"] in {"config", "fault"}]
    fault = "settings of models: /: no space left on device; the proxy tries again"
    assert [message for message in told if message in {f"{file}: read again", fault}] == [f"{file}: read again", fault]


def test_defaults_of_batching_and_sessions_hold_for_all_models(place: Path) -> None:
    """Below the settings of a model are the file's defaults, and below them the batching parameters."""
    parameters = place / "batching.txt"
    threads = "num_batch_threads { value: 3 }"
    parameters.write_text(f"max_batch_size {{ value: 64 }} max_enqueued_batches {{ value: 2 }} {threads}", "utf-8")
    file = place / "settings.json"
    named = {"named": {"batching": {"mode": "off"}}}
    file.write_text(json.dumps({"defaults": {"config": {"session_num": 2}, "priority": 3}, "models": named}), "utf-8")
    for name in ("named", "hand"):
        write_model(place / name / "1")
    entries = [
        f'config {{ name: "{name}" base_path: "{place}/{folder}" }}'
        for name, folder in (("ranking", "base"), ("named", "named"))
    ]
    (place / "models.config").write_text(f"model_config_list {{ {' '.join(entries)} }}", encoding="utf-8")
    options = ("--config", str(place / "models.config"), "--model-settings", str(file))
    options += ("--batching_parameters_file", str(parameters))
    with ProxyThread(place, *options) as proxy, proxy.client() as client:
        becomes(lambda: states(client), {3: "ready"})

        def entry(name: str, number: int = 1) -> dict[str, Any]:
            found: dict[str, Any] = wait_for(lambda: proxy.desired()["models"].get(name))["versions"][str(number)]
            return found

        batching = {"mode": "zero_wait", "max_rows": 64, "max_wait_us": 1000}
        assert (entry("ranking", 3)["batching"], entry("ranking", 3)["limits"]) == (batching, {"max_queue": 128})
        assert entry("ranking", 3)["config"] == {"worker_threads": 3, "session_num": 2}
        assert entry("named")["batching"]["mode"] == "off"
        assert entry("named")["limits"] == {"max_queue": 128}
        # By hand: what the operator says goes first, and only sessions and batching have defaults.
        client.deploy("hand", place / "hand" / "1", config={"omp_num_threads": 1}, wait=True)
        by_hand = entry("hand")
        assert by_hand["config"] == {"worker_threads": 3, "session_num": 2, "omp_num_threads": 1}
        assert (by_hand["batching"], by_hand["limits"]) == (batching, {"max_queue": 128})
        assert "priority" not in by_hand
        client.deploy("hand", place / "hand" / "1", batching={"mode": "off"})
        wait_for(lambda: entry("hand")["batching"]["mode"] == "off")
        # Asked for again, nothing that was chosen is undone.
        client.deploy("hand", place / "hand" / "1")
        assert entry("hand")["batching"]["mode"] == "off"
    parameters.write_text("max_batch_sise { value: 64 }", encoding="utf-8")
    with pytest.raises(InvalidError, match="max_batch_sise"):
        ProxyThread(place, *options, host="none").settings().check()


@pytest.mark.parametrize("single", [False, True], ids=["config", "single"])
def test_hosts_start_with_what_was_configured(place: Path, single: bool) -> None:
    """A host without models would be ready at once and answer NOT_FOUND."""
    options = ("--config", str(place / "models.config"))
    if single:
        options = ("--model-name", "ranking", "--model-base-path", str(place / "base"))
    with ProxyThread(place, *options) as proxy, proxy.client() as client:
        becomes(lambda: states(client), {3: "ready"})
        events = client.events(limit=1000)
        started = min(event["id"] for event in events if event["kind"] == "host" and "started" in event["message"])
        loading = min(event["id"] for event in events if event["message"] == "ranking/3: loading")
        assert loading < started


def test_a_single_model_needs_no_configuration(place: Path) -> None:
    options = ("--model-name", "ranking", "--model-base-path", f"file://{place}/base")
    with ProxyThread(place, *options) as proxy, proxy.client() as client:
        becomes(lambda: states(client), {3: "ready"})
        write_model(place / "base" / "4")
        becomes(lambda: model(client)["baseline"], 4)
    with pytest.raises(InvalidError, match="--model-base-path: with --config"):
        ProxyThread(place, *options, "--config", str(place / "models.config"), host="none").settings().check()
    with pytest.raises(InvalidError, match="has base_path 'ftp://x': expected a path, or a URL"):
        ProxyThread(place, "--model-base-path", "ftp://x", host="none").settings().check()
