# SPDX-License-Identifier: Apache-2.0
"""Endless files, devices and files of the wrong kind: the proxy reports each in one line and never hangs."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.proxies.proxy_runs import ProxyProcess, ProxyThread, write_model
from serving_proxy import Client
from serving_proxy.errors import InvalidError, NotFoundError, PreconditionError, ProxyError

Make = Callable[..., Path]
NESTED = "[" * 100_000


def pipe(file: Path) -> None:
    os.mkfifo(file)


def endless(file: Path) -> None:
    file.symlink_to("/dev/zero")


def folder(file: Path) -> None:
    file.mkdir()


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < 400


@pytest.fixture(params=[pipe, endless, folder])
def odd(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    made: Callable[[Path], None] = request.param
    return made


def test_profiles(client: Client, model: Make, name: str, tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "profile.json")
    with pytest.raises(InvalidError, match=r"(profile\.json|/dev/zero): .*expected a profile"):
        client.deploy(name, model(3), profile=str(tmp_path / "profile.json"))
    assert client.status()["fault"] is None


@pytest.mark.parametrize("file", ["saved_model.pb", "saved_model.pbtxt"])
def test_graphs(client: Client, name: str, tmp_path: Path, odd: Callable[[Path], None], file: str) -> None:
    (tmp_path / "3").mkdir()
    odd(tmp_path / "3" / file)
    with pytest.raises(NotFoundError, match=r"no saved_model\.pb"):
        client.deploy(name, tmp_path / "3")
    assert client.status()["fault"] is None


@pytest.mark.parametrize("odd", [pipe, endless])
def test_files_of_a_model(client: Client, model: Make, name: str, odd: Callable[[Path], None]) -> None:
    place = model(3)
    (place / "variables").mkdir()
    odd(place / "variables" / "variables.data-00000-of-00001")
    with pytest.raises(PreconditionError, match=r"variables\.data-00000-of-00001: .*expected regular files"):
        client.deploy(name, place, wait=True)


@pytest.mark.parametrize("odd", [pipe, folder])
def test_configurations(client: Client, model: Make, name: str, tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "model.json")
    with pytest.raises(ProxyError, match="expected"):
        client.deploy(name, tmp_path / "model.json")
    odd(tmp_path / "warm-up")
    with pytest.raises(NotFoundError, match=r"warm-up file .*: not there, or not a regular file, expected one"):
        client.deploy(name, model(3), warmup=str(tmp_path / "warm-up"))


def test_a_checkpoint_with_a_pipe_in_it(client: Client, model: Make, name: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    pipe(tmp_path / "checkpoint" / "model.ckpt.index")
    with pytest.raises(InvalidError, match=r"model\.ckpt\.index: a named pipe, socket or device"):
        client.deploy(name, model(3), config={"checkpoint_dir": str(tmp_path / "checkpoint")})


@pytest.mark.parametrize("text", ["model_config_list {" * 5000, '{"a":' * 100_000, NESTED])
def test_endless_nesting_is_refused(client: Client, name: str, tmp_path: Path, text: str) -> None:
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pbtxt").write_text(
        "meta_graphs {" + "graph_def { library {" * 5000, encoding="utf-8"
    )
    with pytest.raises(PreconditionError, match=r"a graph that does not parse|too deep"):
        client.deploy(name, tmp_path / "3", wait=True)
    (tmp_path / "model.json").write_text('{"a":' * 100_000, encoding="utf-8")
    with pytest.raises(InvalidError, match=r"model\.json: .*expected the JSON of a DeepRec Processor"):
        client.deploy(name, tmp_path / "model.json")
    with pytest.raises(InvalidError, match="expected a ModelServerConfig"):
        client.reload(text)
    profile = tmp_path / "profile.json"
    profile.write_text(NESTED, encoding="utf-8")
    with pytest.raises(InvalidError, match="expected a profile"):
        client.deploy(name, write_model(tmp_path / "4"), profile=str(profile))


def refused(proxy: ProxyProcess) -> str:
    """Start a proxy that must fail, and return the one line that it prints."""
    proxy.folder.mkdir(exist_ok=True)
    assert proxy.spawn().wait(120) in {1, 2}
    said = proxy.log_path.read_text(encoding="utf-8")
    assert "Traceback" not in said
    assert said.count("error: ") == 1
    return said.replace("\n", " ")


@pytest.mark.parametrize("file", ["proxy.sqlite3", "proxy.lock", "admin.token"])
def test_files_of_the_state_directory(tmp_path: Path, file: str) -> None:
    for number, odd in enumerate((pipe, folder)):
        proxy = ProxyProcess(tmp_path / str(number), host="none")
        proxy.state_dir.mkdir(parents=True)
        odd(proxy.state_dir / file)
        assert f"{file}: " in refused(proxy)


@pytest.mark.parametrize("odd", [pipe, folder, endless])
def test_a_configuration_of_the_start(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "models.config")
    proxy = ProxyProcess(tmp_path, "--config", str(tmp_path / "models.config"), host="none")
    assert "models.config: " in refused(proxy)


def test_a_database_with_a_damaged_row(tmp_path: Path) -> None:
    with ProxyThread(tmp_path, host="none") as running, running.client() as client:
        client.deploy("ranking", write_model(tmp_path / "3"))
    for column, table, value in (
        ("record", "versions", "{"),
        ("record", "versions", '{"number": "x"}'),
        ("record", "models", NESTED),
        ("record", "models", b"\xff\xfe"),
    ):
        database = sqlite3.connect(tmp_path / "state" / "proxy.sqlite3", isolation_level=None)
        ((before,),) = database.execute(f"SELECT {column} FROM {table}").fetchall()
        database.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT)", (value,))
        proxy = ProxyProcess(tmp_path, host="none")
        proxy.log_path.unlink(missing_ok=True)
        assert "proxy.sqlite3: " in refused(proxy)
        database.execute(f"UPDATE {table} SET {column} = ?", (before,))
        database.close()


@pytest.mark.parametrize("odd", [pipe, folder, endless])
def test_a_state_that_cannot_be_adopted(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    (tmp_path / "state").mkdir()
    odd(tmp_path / "state" / "desired.json")
    assert "desired.json: " in refused(ProxyProcess(tmp_path, host="none"))


@pytest.mark.parametrize("odd", [pipe, folder, endless])
def test_what_hosts_have_written(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    hosts = tmp_path / "state" / "hosts"
    for number, file in enumerate(("actual.json", "stats.json", "shadow.json", "lock", "heartbeat", "host.log")):
        host = hosts / f"host-{number}"
        host.mkdir(parents=True)
        (host / "actual.json").write_text(f'{{"pid": {os.getpid()}}}', encoding="utf-8")
        (host / file).unlink(missing_ok=True)
        odd(host / file)
    (hosts / "host-8").mkdir()
    (hosts / "host-8" / "actual.json").write_text(NESTED, encoding="utf-8")
    with ProxyThread(tmp_path, host="none") as proxy, proxy.client() as client:
        begun = time.monotonic()
        for _ in range(5):
            client.status()
        assert time.monotonic() - begun < 30
        shutil.rmtree(hosts)
