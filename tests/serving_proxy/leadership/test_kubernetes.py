# SPDX-License-Identifier: Apache-2.0
"""Leases at a server that keeps the rules of the API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from helpers.deploy.api_server import NAMESPACE, ApiServer
from helpers.proxies.proxy_runs import ProxyThread, wait_for
from serving_proxy.errors import InvalidError, UnavailableError
from serving_proxy.leadership import kubernetes, watching
from serving_proxy.leadership.kubernetes import KubernetesLease, lease_of_cluster
from serving_proxy.leadership.leading import Leadership
from serving_proxy.leadership.lease import Held, renewed

NAME = "recprocessor-proxy"
# The longest time that a request gets follows from it.
LASTS_S = 60.0


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path / "api") as running:
        yield running


def lease(api: ApiServer) -> KubernetesLease:
    return KubernetesLease(NAME, NAMESPACE, api.url, api.account, LASTS_S)


def held(term: int, holder: str = "a") -> Held:
    return Held(term, holder, f"https://{holder}:8502", LASTS_S)


def test_a_lease_is_taken_renewed_and_released(api: ApiServer) -> None:
    first, second = lease(api), lease(api)
    assert first.read() is None
    assert first.take(held(1))
    assert second.read() == held(1)
    made = held(1)
    for _ in range(3):
        made = renewed(made)
        assert first.renew(made)
    assert second.read() == made
    spec = api.leases[NAME]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", LASTS_S, 1)
    assert spec["acquireTime"] < spec["renewTime"]
    assert first.renew(Held(1, "a", "https://a:8502", LASTS_S, 4, released=True))
    found = second.read()
    assert found is not None
    assert found.released
    assert second.take(held(2, "b"))
    assert first.read() == held(2, "b")


def test_a_lease_that_was_renewed_since_it_was_seen_is_not_taken(api: ApiServer) -> None:
    first, second = lease(api), lease(api)
    first.read()
    assert first.take(held(1))
    assert second.read() == held(1)
    assert first.renew(renewed(held(1)))
    assert not second.take(held(2, "b"))
    assert first.renew(renewed(renewed(held(1))))
    second.read()
    assert second.take(held(2, "b"))
    assert not first.renew(renewed(held(1)))


def test_of_many_that_take_a_lease_at_once_one_succeeds(api: ApiServer) -> None:
    proxies = [lease(api) for _ in range(4)]
    for term in range(1, 11):
        for proxy in proxies:
            proxy.read()
        won: list[int] = []
        start = threading.Barrier(len(proxies))

        def take(of: int, term: int, start: threading.Barrier, won: list[int]) -> None:
            start.wait()
            if proxies[of].take(held(term, str(of))):
                won.append(of)

        threads = [threading.Thread(target=take, args=(of, term, start, won)) for of in range(len(proxies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = won
        assert api.leases[NAME]["spec"]["holderIdentity"] == str(winner)


def test_changes_of_others_to_the_object_stay_and_cost_no_lease(api: ApiServer) -> None:
    first = lease(api)
    first.read()
    first.take(held(1))
    api.edit(NAME, team="ranking")
    assert first.renew(renewed(held(1)))
    assert api.leases[NAME]["metadata"]["annotations"]["team"] == "ranking"


def test_a_lease_that_was_deleted_is_lost_and_its_successor_has_a_later_term(api: ApiServer) -> None:
    first, second = lease(api), lease(api)

    async def run() -> None:
        leading, standby = Leadership(first, "https://a", 600.0), Leadership(second, "https://b", 600.0)
        assert await leading.look()
        assert not await standby.look(1)
        del api.leases[NAME]
        assert not first.renew(renewed(held(1)))
        assert await standby.look(1)
        assert standby.term == 2

    asyncio.run(run())


def test_a_new_token_is_used_at_once(api: ApiServer) -> None:
    first = lease(api)
    first.read()
    api.set_token("a-second-token")
    assert first.take(held(1))


@pytest.mark.parametrize("verb", ["get", "create", "update"])
def test_a_missing_right_is_named(api: ApiServer, verb: str) -> None:
    first = lease(api)
    first.read()
    if verb == "update":
        assert first.take(held(1))
    api.rights -= {verb}
    with pytest.raises(UnavailableError, match=rf"recprocessor/recprocessor-proxy: HTTP status 403, .*cannot {verb} "):
        first.take(held(2)) if verb != "get" else first.read()


def test_wrong_tokens_other_authorities_and_a_silent_server_are_named(api: ApiServer, tmp_path: Path) -> None:
    api.token = "another-token"
    with pytest.raises(UnavailableError, match="HTTP status 401, Unauthorized"):
        lease(api).read()
    with ApiServer(tmp_path / "other") as other:
        (api.account / "ca.crt").write_bytes((other.account / "ca.crt").read_bytes())
        with pytest.raises(UnavailableError, match=f"certificate verify failed.*expected the API server at {api.url}"):
            lease(api).read()
    with pytest.raises(UnavailableError, match="expected the API server at"):
        KubernetesLease(NAME, NAMESPACE, other.url, api.account, LASTS_S).read()


def test_a_proxy_outside_of_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidError, match="no KUBERNETES_SERVICE_HOST, expected a pod"):
        lease_of_cluster(NAME, 5.0)


@pytest.fixture
def pod(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process find the cluster as the process of a pod does."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    monkeypatch.setattr(kubernetes, "ACCOUNT", api.account)


def test_a_pod_without_a_token_is_refused(pod: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kubernetes, "ACCOUNT", tmp_path / "none")
    with pytest.raises(InvalidError, match="automountServiceAccountToken"):
        lease_of_cluster(NAME, 5.0)


def test_a_standby_leads_when_the_leader_ends(api: ApiServer, pod: None, tmp_path: Path) -> None:
    options = ["--engine", "agents", "--shared-store", f"file://{tmp_path}/shared", "--new-store"]
    options += ["--lease", f"kubernetes:{NAME}"]
    # The leader gives the lease back, so that this may be long: on a busy machine the process of both may stand still
    # for seconds.
    options += ["--lease-timeout", "60"]
    with ProxyThread(tmp_path / "b", *options) as second:
        wait_for(lambda: _health(second) == "ok")
        with ProxyThread(tmp_path / "a", *options) as first:
            assert _health(first) == "standby"
            assert api.leases[NAME]["spec"]["leaseTransitions"] == 1
            second.stop()
            wait_for(lambda: _health(first) == "ok")
            found = api.leases[NAME]
            assert found["spec"]["leaseTransitions"] == 2
            assert found["metadata"]["annotations"]["recprocessor/url"] == first.url


def test_a_leader_that_has_lost_its_store_leads_again_once_it_is_back(
    api: ApiServer, pod: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_PATIENCE_S", 1.0)
    shared = tmp_path / "shared"
    options = ["--engine", "agents", "--shared-store", f"file://{shared}", "--new-store"]
    options += ["--lease", f"kubernetes:{NAME}"]
    with ProxyThread(tmp_path / "a", *options, "--lease-timeout", "2") as proxy:
        wait_for(lambda: _health(proxy) == "ok")
        shared.rename(tmp_path / "away")
        # It renews its lease all the time, and nothing is changed.
        wait_for(lambda: _health(proxy) == "standby")
        (tmp_path / "away").rename(shared)
        wait_for(lambda: _health(proxy) == "ok")
        assert api.leases[NAME]["spec"]["leaseTransitions"] > 1


def _health(proxy: ProxyThread) -> str:
    return str(httpx.get(f"{proxy.url}/healthz", trust_env=False, timeout=60).json()["status"])


def test_a_standby_that_cannot_read_the_lease_says_so(api: ApiServer, pod: None, tmp_path: Path) -> None:
    api.token = "another-token"
    options = ["--engine", "agents", "--shared-store", f"file://{tmp_path}/shared", "--new-store"]
    options += ["--lease", f"kubernetes:{NAME}"]
    with ProxyThread(tmp_path / "a", *options) as proxy:

        def said() -> str:
            return httpx.get(f"{proxy.url}/v1/status", trust_env=False, timeout=60).text

        wait_for(lambda: "can neither follow nor lead; its log says why" in said())
        assert _health(proxy) == "standby"
        api.set_token("a-second-token")
        wait_for(lambda: _health(proxy) == "ok")
