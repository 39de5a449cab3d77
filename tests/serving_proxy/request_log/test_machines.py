# SPDX-License-Identifier: Apache-2.0
"""Request logs and warm-up files of machines: a proxy and agents with real sockets and files."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest

from helpers.hosts.request_log_files import framed, prediction_log, write_log
from helpers.proxies.agent_runs import Machine
from helpers.proxies.proxy_runs import ProxyThread, wait_for
from serving_proxy import Client
from serving_proxy.agent import reports
from serving_proxy.agent.link import Link
from serving_proxy.errors import InvalidError, NotFoundError, PreconditionError, UnavailableError
from serving_proxy.request_log.files import frames
from serving_proxy.request_log.machines import MachineLogs, equal_shares, newest_of_machines, shared_counts

Model = Callable[..., Path]
Fleet = tuple[Client, dict[str, Machine]]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyThread]:
    with ProxyThread(tmp_path_factory.mktemp("fleet"), "--engine", "agents") as running:
        yield running


@pytest.fixture(scope="module")
def machines(proxy: ProxyThread) -> Iterator[dict[str, Machine]]:
    """Two machines with a host each."""
    with Machine.of(proxy, "m1") as first, Machine.of(proxy, "m2") as second, proxy.client() as client:
        wait_for(lambda: len([host for host in client.status()["hosts"] if host["alive"]]) == 2)
        yield {"m1": first, "m2": second}


def logs(name: str, *values: float) -> list[bytes]:
    return [prediction_log(name, [value]) for value in values]


def records(path: str | Path) -> list[bytes]:
    return [frame[12:-4] for frame in frames(Path(path))]


def test_logs_of_all_machines_are_listed_merged_and_deleted(
    client: Client, machines: dict[str, Machine], name: str, model: Model
) -> None:
    client.deploy(name, model(1), wait=True, timeout=120)
    with pytest.raises(NotFoundError, match="no request in it"):
        client.merge_request_log(name)
    first = write_log(machines["m1"].state_dir, name, 1000, logs(name, 1, 2))
    write_log(machines["m2"].state_dir, name, 500, logs(name, 3))
    # The request log of another model.
    write_log(machines["m2"].state_dir, f"{name}x", 1, logs(name, 9))
    found = client.request_log(name)
    assert [(file["host"], file["began"]) for file in found["files"]] == [("m1/host-0", 0.001), ("m2/host-0", 0.0005)]
    assert found["files"][0]["path"] == str(first)
    assert found["bytes"] == sum(file["bytes"] for file in found["files"])
    assert found["missing"] == {}
    merged = client.merge_request_log(name)
    assert sorted(records(merged["path"])) == sorted(logs(name, 1, 2, 3))
    assert (merged["records"], merged["missing"]) == (3, {})
    assert client.delete_request_log(name)["files"] == []
    assert not first.exists()
    assert Path(merged["path"]).exists()


def test_newest_requests_of_machines_warm_up_versions_there(
    client: Client, machines: dict[str, Machine], name: str, model: Model
) -> None:
    client.deploy(name, model(1), wait=True, timeout=120)
    write_log(machines["m1"].state_dir, name, 1000, logs(name, 5))
    client.deploy(name, model(2), warmup="last", wait=True, timeout=120)
    for machine in machines.values():
        (file,) = [Path(machine.desired()["models"][name]["versions"]["2"]["warmup_file"])]
        assert records(file) == logs(name, 5)
    client.deploy(name, model(2), warmup="last", wait=True, timeout=120)


def test_warm_up_file_of_the_proxy_reaches_a_machine_that_does_not_have_it(
    proxy: ProxyThread, client: Client, machines: dict[str, Machine], name: str, model: Model, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """More than one part, of which one is lost on the way."""
    data = b"".join(framed(prediction_log(name, [float(number)]) + os.urandom(1000)) for number in range(6000))
    given, copies = tmp_path / "requests.bin", proxy.state_dir / "warmups"
    given.write_bytes(data)
    # Agents read files at the proxy's path, if they can; here they must not.
    real = Link.warmup
    asked: list[int] = []

    async def warmup(link: Link, file: str, start: int) -> tuple[bytes, int]:
        asked.append(start)
        if len(asked) == 3:
            raise UnavailableError("the connection was lost")
        return await real(link, file, start)

    monkeypatch.setattr(Link, "warmup", warmup)
    monkeypatch.setattr("serving_proxy.agent.inputs._places", lambda file, folder: [folder / file.name])
    client.deploy(name, model(1), warmup=str(given), wait=True, timeout=120)
    sha256 = hashlib.sha256(data).hexdigest()
    for machine in machines.values():
        file = Path(machine.desired()["models"][name]["versions"]["1"]["warmup_file"])
        assert file == machine.state_dir / "warmups" / f"{sha256[:32]}.bin"
        assert file.read_bytes() == data
    assert (copies / "given" / f"{sha256[:32]}.bin").read_bytes() == data
    # Nothing was sent twice except the part that was lost.
    assert sorted(asked) == sorted([0, 0, 4 << 20, 4 << 20, asked[2]])
    # A version's own file is served, and nothing else of the proxy's machine.
    agent = httpx.Client(base_url=proxy.url, headers=proxy.headers(), trust_env=False, timeout=60)
    assert agent.get(f"/v1/agents/m1/warmups/{sha256[:32]}.bin?start=5").content == data[5 : 5 + (4 << 20)]
    for other in ("0" * 32, "proxy.lock", "..%2Fadmin.token"):
        assert agent.get(f"/v1/agents/m1/warmups/{other}").status_code == 404


def test_machine_that_is_away_or_of_an_earlier_release_is_named(
    proxy: ProxyThread, client: Client, machines: dict[str, Machine], name: str, model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    given = model(3) / "requests"
    given.write_bytes(b"".join(map(framed, logs(name, 1))))
    client.deploy(name, model(1), warmup=str(given), wait=True, timeout=120)
    write_log(machines["m1"].state_dir, name, 1000, logs(name, 1))
    machines["m2"].stop()
    try:
        wait_for(lambda: "m2" in client.request_log(name)["missing"])
        found = client.request_log(name)
        assert [file["host"] for file in found["files"]] == ["m1/host-0"]
        assert "machine 'm2': away" in found["missing"]["m2"]
        merged = client.merge_request_log(name)
        assert (merged["records"], list(merged["missing"])) == (1, ["m2"])
        answer = client.deploy(name, model(2), warmup="last")
        assert any("without the requests of machine 'm2': away" in note for note in answer["notes"])
        with pytest.raises(UnavailableError, match="machine 'm2': away"):
            client.delete_request_log(name)
        assert client.request_log(name)["files"] == []
        with pytest.raises(UnavailableError, match="machine 'm2': away"):
            client.merge_request_log(name)
    finally:
        monkeypatch.setattr(reports, "FEATURES", ())
        machines["m2"].start()
    try:
        wait_for(lambda: "lacks agent:request_logs" in client.request_log(name)["missing"].get("m2", ""))
        with pytest.raises(PreconditionError, match="lacks agent:request_logs"):
            client.merge_request_log(name)
        with pytest.raises(PreconditionError, match=r"machine 'm\d': its agent .* lacks agent:warmup_files"):
            client.deploy(name, model(3), warmup=str(given))
        # Nothing is to be fetched for a version that has the file already.
        assert client.deploy(name, model(1), warmup=str(given))["version"] == 1
    finally:
        monkeypatch.undo()
    wait_for(lambda: client.request_log(name)["missing"] == {})


def test_requests_are_sent_in_parts_and_continue_after_a_break(
    client: Client, machines: dict[str, Machine], name: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.deploy(name, model(1), wait=True, timeout=120)
    large = [os.urandom(1 << 20) for _ in range(9)]
    write_log(machines["m1"].state_dir, name, 1000, large)
    real, starts = Link.send, list[int]()

    async def send(link: Link, question: str, start: int, data: bytes) -> int:
        starts.append(start)
        if len(starts) == 2:
            # The proxy has the part, but its answer is lost.
            await real(link, question, start, data)
            raise UnavailableError("the connection was lost")
        return await real(link, question, start, data)

    monkeypatch.setattr(Link, "send", send)
    merged = client.merge_request_log(name)
    assert records(merged["path"]) == large
    assert starts == [0, 4 << 20, 4 << 20, 8 << 20]


def test_machine_sends_no_more_than_it_is_asked_for(
    proxy: ProxyThread, client: Client, machines: dict[str, Machine], name: str, model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    client.deploy(name, model(1), wait=True, timeout=120)
    monkeypatch.setattr("serving_proxy.fleet.logs._MOST_BYTES", 1 << 20)
    sizes = [900_000, 2 << 20, 600_000, 300_000]
    large = [os.urandom(size) for size in sizes]
    write_log(machines["m1"].state_dir, name, 1000, large)
    assert records(client.merge_request_log(name)["path"]) == large[2:]
    agent = httpx.Client(base_url=proxy.url, headers=proxy.headers(), trust_env=False, timeout=60)
    unasked = agent.put(f"/v1/agents/m1/logs/{'0' * 32}/bytes?start=0", content=b"x")
    assert (unasked.status_code, unasked.json()["error"]["status"]) == (404, "NOT_FOUND")
    too_large = agent.put(f"/v1/agents/m1/logs/{'0' * 32}/bytes?start=0", content=bytes((4 << 20) + 1))
    assert too_large.status_code == 413
    # Refused before any byte of the part has been sent.
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc)
    connection.putrequest("PUT", f"/v1/agents/m1/logs/{'0' * 32}/bytes?start=0")
    for key, value in {**proxy.headers(), "Content-Length": "1000"}.items():
        connection.putheader(key, value)
    connection.endheaders()
    assert connection.getresponse().status == 404
    connection.close()
    assert not (proxy.state_dir / "received_logs").exists()


def test_bytes_that_were_damaged_are_refused(
    client: Client, machines: dict[str, Machine], name: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.deploy(name, model(1), wait=True, timeout=120)
    write_log(machines["m1"].state_dir, name, 1000, logs(name, 1))
    real = Link.send

    async def send(link: Link, question: str, start: int, data: bytes) -> int:
        return await real(link, question, start, bytes(len(data)))

    monkeypatch.setattr(Link, "send", send)
    with pytest.raises(InvalidError, match="machine 'm1': requests with SHA-256"):
        client.merge_request_log(name)


def test_folder_that_a_machine_does_not_have_is_named(
    client: Client, machines: dict[str, Machine], name: str, model: Model, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    real: Any = os.path.isdir
    monkeypatch.setattr("serving_proxy.agent.inputs.os.path.isdir", lambda path: path != str(folder) and real(path))
    with pytest.raises(PreconditionError, match=f"checkpoint_dir {folder}: not on this machine, expected a folder"):
        client.deploy(name, model(1), config={"checkpoint_dir": str(folder)}, wait=True, timeout=120)


def test_machines_have_equal_shares_of_what_is_merged() -> None:
    assert equal_shares({"a": 500, "b": 2000, "c": 2000}, 1000) == {"a": 333, "b": 333, "c": 334}
    assert equal_shares({"a": 100, "b": 2000, "c": 2000}, 1000) == {"a": 100, "b": 450, "c": 450}
    assert equal_shares({"a": 1, "b": 2}, 1000) == {"a": 1, "b": 2}
    assert sum(equal_shares({str(number): 5 for number in range(1500)}, 1000).values()) == 1000


def test_machines_share_the_bytes_of_what_is_merged() -> None:
    megabyte = 1 << 20
    many = shared_counts({str(number): [megabyte] for number in range(300)})
    assert sum(many.values()) == 256
    assert shared_counts({"": [1] * 9, "a": [4, 4, 4], "b": []}, most_bytes=12) == {"": 6, "a": 1, "b": 0}
    assert shared_counts({"": [1, 1], "a": [9, 4, 4, 4]}, most_bytes=12) == {"": 2, "a": 2}
    # A record that is larger than a share is used if the others leave room for it.
    assert shared_counts({"a": [9], "b": [1]}, most_bytes=12) == {"a": 1, "b": 1}
    assert shared_counts({"a": [11], "b": [12]}, most_bytes=12) == {"a": 0, "b": 1}
    assert shared_counts({"a": [5] * 2000, "b": [6] * 2000}) == {"a": 500, "b": 500}


class LiveFrame(bytes):
    """A record that counts how many of its kind there are."""

    now = most = 0

    def __init__(self, _: bytes) -> None:
        LiveFrame.now += 1
        LiveFrame.most = max(LiveFrame.most, LiveFrame.now)

    def __del__(self) -> None:
        LiveFrame.now -= 1


def test_what_machines_have_sent_is_not_all_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = framed(b"a request")
    files: dict[str, Path] = {}
    for number in range(40):
        files[f"m{number}"] = tmp_path / str(number)
        files[f"m{number}"].write_bytes(frame * 100)

    class Sent:
        """Machines that have sent their requests already."""

        async def newest(
            self, model: str, records: int, most_bytes: int, use: Callable[[dict[str, Path]], None]
        ) -> dict[str, Any]:
            use(files)
            return {}

    monkeypatch.setattr("serving_proxy.request_log.machines.frames", lambda path: map(LiveFrame, frames(path)))
    merged, _ = asyncio.run(newest_of_machines(cast(MachineLogs, Sent()), "ranking", [frame]))
    assert merged == [frame] * 1000
    assert 0 < LiveFrame.most <= 2
