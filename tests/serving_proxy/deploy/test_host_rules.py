# SPDX-License-Identifier: Apache-2.0
"""Settings are checked by the rules of the hosts before anything is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.lifecycle_records import deployed, settled
from helpers.proxies.proxy_runs import ProxyThread
from serving_proxy import Client
from serving_proxy.deploy.changes import promote, roll_back
from serving_proxy.deploy.desired_state import HostSettings
from serving_proxy.deploy.host_rules import Checker
from serving_proxy.errors import InvalidError
from serving_proxy.records.models import Settings

Make = Callable[..., Path]


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "cpusets": ({"config": {"cpusets": "0;1"}}, "config.cpusets: set, expected nothing"),
    "savedmodel_dir": ({"config": {"savedmodel_dir": "/x"}}, "config.savedmodel_dir: set, expected nothing"),
    "model_name": ({"config": {"model_name": "x"}}, "config.model_name: set, expected nothing"),
    "batching in config": ({"config": {"batching": {"mode": "timed"}}}, "config.batching: set, expected nothing"),
    "tables in config": ({"config": {"tables": {"tier": "mapped"}}}, "config.tables: set, expected nothing"),
    "unknown": ({"config": {"sesion_num": 2}}, "config key 'sesion_num': unknown"),
    "range": ({"config": {"session_num": 0}}, "config key 'session_num': 0 found, expected an integer from 1"),
    "infinite": ({"config": {"checkpoint_poll_seconds": float("inf")}}, "key 'checkpoint_poll_seconds': inf found"),
    "nan": ({"config": {"a": [{"b": float("nan")}]}}, "key 'a': nan found, expected a finite number"),
    "nesting": ({"config": {"a": nested(40)}}, "key 'config': nested deeper than 32"),
    "deep nesting": ({"config": {"a": nested(900)}}, "key 'config': nested deeper than 32"),
    "no text": ({"config": {"signature_name": "\ud800"}}, "key 'signature_name': '\\ud800' found"),
    "groups": ({"cpuset": "0;0;0", "config": {"session_num": 2}}, "cpuset: cpusets '0;0;0': 3 groups found"),
}


@pytest.mark.parametrize("bad", BAD)
def test_settings_that_hosts_would_refuse_are_refused_before_writing(bad: str) -> None:
    given, message = BAD[bad]
    before = settled(deployed(None, 3))
    after = deployed(before, 4, settings=Settings(**given))
    with pytest.raises(InvalidError) as refused:
        Checker().check(before, after, HostSettings())
    assert str(refused.value).startswith("ranking/4: ")
    assert message in str(refused.value)


def test_settings_that_hosts_accept_pass() -> None:
    settings = Settings(config={"session_num": 2, "executor": "default", "signature_name": "ü"}, cpuset="0;0")
    model = deployed(settled(deployed(None, 3)), 4, settings=settings, labels=("canary",), traffic=100)
    Checker().check(None, model, HostSettings(divided_cpus=4, limits={"ranking/4": 3}))


def test_cpus_are_those_of_hosts() -> None:
    model = deployed(None, 4, settings=Settings(cpuset="4095"))
    with pytest.raises(InvalidError, match=r"ranking/4: cpuset: cpusets '4095': CPU 4095 found, expected .*: 0-1"):
        Checker({0, 1}).check(None, model, HostSettings())
    Checker({4095}).check(None, model, HostSettings())


def test_earlier_faults_do_not_block_other_changes() -> None:
    """A database of an earlier release may contain such settings; a rollback must work then."""
    bad = deployed(settled(deployed(None, 3)), 4, settings=Settings(config={"cpusets": "0;1"}))
    promoted = settled(promote(settled(bad), 4).model)
    Checker().check(promoted, roll_back(promoted).model, HostSettings())
    worse = deployed(promoted, 5, settings=Settings(config={"session_num": 0}))
    with pytest.raises(InvalidError, match=r"^ranking/5: config key 'session_num': 0 found[^;]*$"):
        Checker().check(promoted, worse, HostSettings())


def test_a_deployment_is_refused_before_it_is_accepted(
    client: Client, proxy: ProxyThread, model: Make, name: str
) -> None:
    client.deploy(name, model(3), wait=True)
    before, desired = client.versions(name), proxy.desired()
    for given, message in (BAD["cpusets"], BAD["nesting"], BAD["unknown"]):
        with pytest.raises(InvalidError) as refused:
            client.deploy(name, model(4), **given)
        assert message in str(refused.value)
        with pytest.raises(InvalidError, match=f"{name}/3: "):
            client.deploy(name, model(3), **given)
    assert client.versions(name) == before
    assert proxy.desired() == desired


def test_the_rules_take_little_memory() -> None:
    """The library of the rules maps a tenth of the memory of a host's library."""
    code = (
        "import json, processor\n"
        'processor.check_desired(\'{"schema": 1, "generation": 1, "models": {}}\')\n'
        "print('libtensorflow_cc' in open('/proc/self/maps').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_proxy_without_the_library_works(monkeypatch: pytest.MonkeyPatch) -> None:
    import processor

    asked = []

    def gone(*arguments: object) -> None:
        asked.append(arguments)
        raise processor.NotFoundError("libprocessor.so: no file")

    monkeypatch.setattr(processor, "check_desired", gone)
    checker = Checker()
    for _ in range(2):
        checker.check(None, deployed(None, 4, settings=Settings(config={"session_num": 0})), HostSettings())
    assert len(asked) == 1, "asked once, and told once"
    with pytest.raises(InvalidError, match="inf found"):
        checker.check(None, deployed(None, 4, settings=Settings(config={"a": float("inf")})), HostSettings())


def test_values_that_json_cannot_express_are_refused(proxy: ProxyThread, model: Make, name: str) -> None:
    import httpx

    text = json.dumps({"path": str(model(3)), "config": {"a": 0}}).replace('"a": 0', '"a": 1e400')
    headers = proxy.headers() | {"Content-Type": "application/json"}
    answer = httpx.post(f"{proxy.url}/v1/models/{name}/deploy", content=text, headers=headers, timeout=60)
    assert answer.status_code == 400, answer.text
    assert "key 'a': inf found" in answer.json()["error"]["message"]
