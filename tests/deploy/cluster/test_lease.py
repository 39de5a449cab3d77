# SPDX-License-Identifier: Apache-2.0
"""Two proxies of an installed chart, with the rights that it gives them, and their Lease at a real API server."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from helpers.deploy.cluster import Cluster
from helpers.deploy.manifests import CHART
from helpers.deploy.pod_proxies import PodProxy
from helpers.proxies.proxy_runs import wait_for
from serving_proxy.errors import UnavailableError
from serving_proxy.leadership.kubernetes import KubernetesLease
from serving_proxy.leadership.lease import Held

pytestmark = pytest.mark.long

NAMESPACE = "leases"
NAME = "recprocessor-proxy"
_LONG_S = 120.0
#: Issue 19: a standby takes over within this time [s].
_TAKEOVER_S = 10.0


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Cluster:
    """The cluster with the chart in a namespace."""
    cluster.make_namespace(NAMESPACE)
    installed = cluster.helm("install", "recprocessor", CHART, "--namespace", NAMESPACE, "--set", "replicas=1")
    assert installed.returncode == 0, installed.stderr
    return cluster


def wait_for_pods(cluster: Cluster) -> None:
    """Wait until controllers have made the pods of proxies."""
    names = [f"{NAME}-0", f"{NAME}-1"]
    wait_for(lambda: all(cluster.exists("pod", name, NAMESPACE) for name in names), _LONG_S, "the pods of proxies")


class Pair:
    """The proxies of both pods."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.proxies = [PodProxy(cluster, folder / name, NAMESPACE, f"{NAME}-{name}") for name in ("0", "1")]

    def leader(self) -> PodProxy | None:
        """Return the proxy that leads, if one does."""
        leaders = [proxy for proxy in self.proxies if proxy.process.poll() is None and proxy.health() == "ok"]
        # The first one may have been asked before it lost the lease.
        assert len(leaders) < 2 or leaders[0].health() != "ok"
        return leaders[-1] if leaders else None

    def wait_for_leader(self) -> PodProxy:
        """Wait until one leads."""
        found: PodProxy = wait_for(self.leader, _LONG_S, "a proxy that leads")
        return found

    def wait_for_none(self) -> None:
        """Wait until both are on standby."""
        wait_for(lambda: [proxy.health() for proxy in self.proxies] == ["standby"] * 2, _LONG_S, "two on standby")

    def other(self, proxy: PodProxy) -> PodProxy:
        """Return the other proxy."""
        return next(other for other in self.proxies if other is not proxy)

    def spec(self) -> dict[str, Any]:
        """Return what the Lease says."""
        found: dict[str, Any] = self.cluster.get("lease", NAME, NAMESPACE)["spec"]
        return found


@pytest.fixture
def pair(release: Cluster, tmp_path: Path) -> Iterator[Pair]:
    release.ask("delete", "lease", NAME, "--namespace", NAMESPACE, "--ignore-not-found")
    wait_for_pods(release)
    made = Pair(release, tmp_path)
    # Both at once.
    for proxy in made.proxies:
        proxy.spawn()
    try:
        for proxy in made.proxies:
            proxy.start_waiting()
        yield made
    finally:
        for proxy in made.proxies:
            if proxy.process.poll() is None:
                proxy.kill()


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_of_two_proxies_that_start_at_once_one_leads(pair: Pair) -> None:
    leader = pair.wait_for_leader()
    first = pair.spec()
    # Longer than the lease lasts: it is renewed, and nobody else takes it.
    end = time.monotonic() + 3 * first["leaseDurationSeconds"]
    while time.monotonic() < end:
        assert pair.leader() is leader
        time.sleep(0.2)
    spec = pair.spec()
    assert (spec["leaseTransitions"], spec["holderIdentity"]) == (1, first["holderIdentity"])
    assert _seconds(spec["renewTime"]) > _seconds(first["renewTime"])
    annotations = pair.cluster.get("lease", NAME, NAMESPACE)["metadata"]["annotations"]
    assert annotations["recprocessor/url"] == leader.url
    with pair.other(leader).client() as client:
        assert client.status()["pid"] == leader.process.pid


def test_a_standby_takes_over_from_a_killed_leader(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        leader = pair.wait_for_leader()
        standby, before = pair.other(leader), pair.spec()
        wait_for(lambda of=standby: of.health() == "standby", _LONG_S)
        leader.kill()
        begun = time.monotonic()
        assert wait_for(pair.leader, _LONG_S, "a standby that leads") is standby
        took_s = time.monotonic() - begun
        after = pair.spec()
        assert after["leaseTransitions"] == before["leaseTransitions"] + 1
        assert after["holderIdentity"] != before["holderIdentity"]
        with capsys.disabled():
            print(f"\ntook over {took_s:.1f} s after kill -9")
        assert took_s < _TAKEOVER_S
        leader.start()


def test_a_leader_that_ends_in_order_hands_over(pair: Pair) -> None:
    leader = pair.wait_for_leader()
    before = pair.spec()
    assert leader.stop(_LONG_S) == 0
    assert pair.wait_for_leader() is pair.other(leader)
    assert pair.spec()["leaseTransitions"] == before["leaseTransitions"] + 1


def _kill(cluster: Cluster) -> None:
    cluster.kill_api_server()


def _stop(cluster: Cluster) -> None:
    cluster.signal_api_server(signal.SIGSTOP)


@pytest.mark.parametrize("away", [_kill, _stop], ids=["refuses connections", "does not answer"])
def test_nobody_leads_without_an_api_server_and_one_leads_again(pair: Pair, away: Callable[[Cluster], None]) -> None:
    leader = pair.wait_for_leader()
    with leader.client() as client:
        term = client.status()["term"]
    away(pair.cluster)
    try:
        pair.wait_for_none()
        # The state of hosts does not change while nobody leads.
        with leader.client() as client, pytest.raises(UnavailableError, match="on standby"):
            client.status()
        log = leader.log()
        assert f"expected the API server at {pair.cluster.url}" in log, log[-2000:]
    finally:
        if away is _kill:
            pair.cluster.start_api_server()
        else:
            pair.cluster.signal_api_server(signal.SIGCONT)
        pair.cluster.wait_until_ready()
    with pair.wait_for_leader().client() as client:
        assert client.status()["term"] > term


def test_a_lease_that_was_deleted_is_made_again_with_a_later_term(pair: Pair) -> None:
    pair.wait_for_leader()
    term = pair.spec()["leaseTransitions"]
    pair.cluster.ask("delete", "lease", NAME, "--namespace", NAMESPACE)
    wait_for(lambda: pair.cluster.exists("lease", NAME, NAMESPACE), _LONG_S, "a new lease")
    assert pair.spec()["leaseTransitions"] > term
    # The former leader notices at its next renewal. Until then, the term says whose state counts.
    wait_for(lambda: sorted(proxy.health() for proxy in pair.proxies) == ["ok", "standby"], _LONG_S, "one that leads")


def test_what_others_write_into_the_lease_stays_and_costs_no_leadership(pair: Pair) -> None:
    pair.wait_for_leader()
    before = pair.spec()
    for number in range(5):
        label = f"test/number={number}"
        pair.cluster.ask("annotate", "lease", NAME, "--namespace", NAMESPACE, label, "--overwrite")
        renewed = pair.spec()["renewTime"]
        wait_for(lambda since=renewed: pair.spec()["renewTime"] > since, _LONG_S, "a renewal")
    assert pair.spec()["leaseTransitions"] == before["leaseTransitions"]
    annotations = pair.cluster.get("lease", NAME, NAMESPACE)["metadata"]["annotations"]
    assert annotations["test/number"] == "4"


def test_without_its_role_a_proxy_stops_to_lead_and_says_why(pair: Pair) -> None:
    pair.wait_for_leader()
    binding = pair.cluster.ask("get", "rolebinding", NAME, "--namespace", NAMESPACE, "--output", "json")
    pair.cluster.ask("delete", "rolebinding", NAME, "--namespace", NAMESPACE)
    try:
        pair.wait_for_none()
        said = "HTTP status 403, leases.coordination.k8s.io"
        wait_for(lambda: all(_says(proxy, said) for proxy in pair.proxies), _LONG_S, "a message in each log")
    finally:
        pair.cluster.ask("create", "--filename", "-", given=_without_version(binding))
    pair.wait_for_leader()


def test_a_wrong_token_is_named_and_a_right_one_is_used_at_once(pair: Pair) -> None:
    leader = pair.wait_for_leader()
    standby = pair.other(leader)
    token = standby.account / "token"
    right = token.read_text()
    token.write_text(f"{right[:-8]}aaaaaaaa")
    wait_for(lambda: _says(standby, "HTTP status 401, Unauthorized"), _LONG_S, "a message in the log")
    assert standby.health() == "standby"
    leader.kill()
    # The other one cannot take the lease either.
    lasts_s = pair.spec()["leaseDurationSeconds"]
    time.sleep(2 * lasts_s)
    assert "can neither follow nor lead; its log says why" in standby.ask("/v1/status").text
    token.write_text(right)
    assert pair.wait_for_leader() is standby


def test_the_token_of_a_pod_that_is_gone_is_refused(pair: Pair) -> None:
    leader = pair.wait_for_leader()
    pair.cluster.ask("delete", "pod", leader.name, "--namespace", NAMESPACE)
    # The API server remembers for some seconds that a token was right.
    wait_for(lambda: _says(leader, "HTTP status 401, Unauthorized"), _LONG_S, "a message in the log")
    wait_for(lambda: pair.leader() is pair.other(leader), _LONG_S, "the other one leads")


def test_the_role_permits_the_lease_of_the_proxies_and_nothing_else(release: Cluster) -> None:
    def may(verb: str, what: str, account: str = NAME) -> bool:
        user = f"system:serviceaccount:{NAMESPACE}:{account}"
        answer = release.kubectl("auth", "can-i", verb, what, "--namespace", NAMESPACE, "--as", user).stdout.strip()
        assert answer in {"yes", "no"}
        return answer == "yes"

    assert all(may(verb, f"leases/{NAME}") for verb in ("get", "update"))
    assert may("create", "leases")
    refused = [("delete", f"leases/{NAME}"), ("get", "leases/other"), ("update", "leases/other"), ("list", "leases")]
    refused += [("get", "secrets"), ("get", "pods"), ("create", "pods"), ("get", "configmaps")]
    assert not any(may(verb, what) for verb, what in refused)
    assert not any(may(verb, f"leases/{NAME}", "recprocessor") for verb in ("get", "update", "create"))


def test_of_many_that_take_the_lease_at_once_one_succeeds(release: Cluster, tmp_path: Path) -> None:
    release.ask("delete", "lease", NAME, "--namespace", NAMESPACE, "--ignore-not-found")
    wait_for_pods(release)
    proxy = PodProxy(release, tmp_path / "0", NAMESPACE, f"{NAME}-0")
    leases = [KubernetesLease(NAME, NAMESPACE, release.url, proxy.account, 60.0) for _ in range(8)]
    for term in range(1, 21):
        for lease in leases:
            lease.read()
        won: list[int] = []
        start = threading.Barrier(len(leases))

        def take(of: int, term: int = term, start: threading.Barrier = start, won: list[int] = won) -> None:
            start.wait()
            if leases[of].take(Held(term, str(of), f"https://{of}:8502", 5.0)):
                won.append(of)

        threads = [threading.Thread(target=take, args=(of,)) for of in range(len(leases))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = won
        spec = release.get("lease", NAME, NAMESPACE)["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == (str(winner), term)
    # One that read the lease before it was deleted does not make it again.
    release.ask("delete", "lease", NAME, "--namespace", NAMESPACE)
    assert not leases[winner].renew(Held(20, str(winner), f"https://{winner}:8502", 5.0, 1))
    assert not release.exists("lease", NAME, NAMESPACE)


def _says(proxy: PodProxy, text: str) -> bool:
    return text in proxy.log()


def _without_version(text: str) -> str:
    """Return an object of the API server so that it can be created again."""
    found = json.loads(text)
    for key in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        found["metadata"].pop(key, None)
    return json.dumps(found)
