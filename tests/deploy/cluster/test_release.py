# SPDX-License-Identifier: Apache-2.0
"""Install, upgrade and uninstall the chart at a real API server; controllers make its pods, no kubelet runs them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.deploy.cluster import Cluster, Json
from helpers.deploy.manifests import CHART, PLAIN, plain
from helpers.proxies.proxy_runs import wait_for

pytestmark = pytest.mark.long

_LONG_S = 120.0
_NUMBERS = itertools.count(1)
_CLAIM = '{"persistentVolumeClaim":{"claimName":"models-of-all"}}'


class Release:
    """The chart in a namespace of its own.

    Attributes
    ----------
    namespace : str
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace

    def run(self, verb: str, *settings: str, options: tuple[str, ...] = ()) -> str:
        """Run a verb of helm with the chart, which must succeed without a warning; return what it says."""
        words = [word for setting in settings for word in ("--set-json", setting)]
        ended = self._cluster.helm(verb, "recprocessor", CHART, "--namespace", self.namespace, *options, *words)
        assert ended.returncode == 0, ended.stderr
        assert "would violate" not in ended.stderr
        return ended.stdout

    def all(self, kind: str, *options: str) -> list[Json]:
        """Return its objects of a kind."""
        return self._cluster.all(kind, self.namespace, *options)

    def pods(self, part: str) -> dict[str, Json]:
        """Return the pods of hosts or proxies that are not about to end, by their names."""
        found = self.all("pods", "--selector", f"app.kubernetes.io/component={part}")
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def wait_for_pods(self, part: str, count: int) -> dict[str, Json]:
        """Wait until there are as many pods."""
        try:
            wait_for(lambda: len(self.pods(part)) == count, _LONG_S)
        except AssertionError:
            events = [event["message"] for event in self.all("events") if event["type"] == "Warning"]
            raise AssertionError(f"{len(self.pods(part))} pods, expected {count}: {events}") from None
        return self.pods(part)

    def set_ready(self, part: str) -> None:
        """Say that all of its pods are ready."""
        for name in self.pods(part):
            self._cluster.set_ready(name, self.namespace)

    def tokens(self) -> Json:
        """Return what the generated secrets contain."""
        return {
            secret["metadata"]["name"]: secret["data"]
            for secret in self.all("secrets", "--field-selector", "type!=helm.sh/release.v1")
        }

    def left(self) -> set[str]:
        """Return all objects of the namespace that are not in every namespace, as kind/name."""
        kinds = self._cluster.ask("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
        kinds = [kind for kind in kinds if not kind.startswith("events")]
        shown = self._cluster.ask("get", ",".join(kinds), "--namespace", self.namespace, "--output=name").split()
        return set(shown) - {"serviceaccount/default", "configmap/kube-root-ca.crt"}


@pytest.fixture
def release(cluster: Cluster) -> Iterator[Release]:
    """A release in a namespace that enforces the level `restricted`, to be installed."""
    namespace = f"release-{next(_NUMBERS)}"
    cluster.make_namespace(namespace)
    yield Release(cluster, namespace)
    cluster.ask("delete", "namespace", namespace, "--wait=false")


SETTINGS: dict[str, list[str]] = {
    "default": [],
    "the Python host and one proxy": ['host.program="python"', "replicas=1", "proxy.replicas=1"],
    "TLS": ['host.tlsSecret="tls"', 'host.clientCa="ca.crt"', 'host.extraArgs=["--max-connections","64"]'],
    "a claim with models": [f"models.volume={_CLAIM}", 'models.mountPath="/m"', 'sharedStore.storageClass=""'],
    "a model store": ['modelStore={"url":"s3://models","secret":"s3"}', 'proxy.extraArgs=["--load-timeout","60"]'],
    "a bucket that proxies share": ['sharedStore.url="s3://models/proxies"', 'modelStore.url="s3://models"'],
    "a lease in the shared store": ['proxy.lease="store"', "networkPolicy.enabled=false"],
    "network policies": [
        'networkPolicy.clients=[{"namespaceSelector":{}}]',
        'networkPolicy.admins=[{"podSelector":{}}]',
        'networkPolicy.monitoring=[{"namespaceSelector":{"matchLabels":{"name":"monitoring"}}}]',
        'networkPolicy.apiServers=[{"ipBlock":{"cidr":"10.0.0.1/32"}}]',
        'networkPolicy.extraEgress=[{"ports":[{"port":443,"protocol":"TCP"}]}]',
    ],
    "places": [
        'host.tolerations=[{"key":"serving","operator":"Exists"}]',
        'host.nodeSelector={"serving":"true"}',
        'proxy.affinity={"nodeAffinity":{}}',
        'image={"registry":"registry.example.com/x/","pullSecrets":[{"name":"pull"}]}',
        'podDisruptionBudget.maxUnavailable="25%"',
        'serviceAccountAnnotations={"role":"models"}',
    ],
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
def test_controllers_make_all_pods_of_a_release_and_uninstalling_leaves_only_claims(
    release: Release, cluster: Cluster, settings: list[str]
) -> None:
    release.run("install", *settings)
    release.wait_for_pods("host", 1 if "replicas=1" in settings else 3)
    proxies = release.wait_for_pods("proxy", 1 if "proxy.replicas=1" in settings else 2)
    claims = {f"persistentvolumeclaim/{claim['metadata']['name']}" for claim in release.all("pvc")}
    assert {f"persistentvolumeclaim/state-{name}" for name in proxies} <= claims
    removed = cluster.helm("uninstall", "recprocessor", "--namespace", release.namespace)
    assert removed.returncode == 0, removed.stderr
    # The garbage collector removes what controllers have made.
    wait_for(lambda: release.left() == claims, _LONG_S, f"{sorted(claims)} left, found {sorted(release.left())}")


def test_the_documented_command_makes_the_namespace(cluster: Cluster) -> None:
    made = Release(cluster, "recprocessor")
    made.run("install", "replicas=3", options=("--create-namespace",))
    made.wait_for_pods("host", 3)
    cluster.ask("delete", "namespace", "recprocessor", "--wait=false")


def test_pods_are_of_the_class_guaranteed_and_only_proxies_get_a_token(release: Release) -> None:
    release.run("install")
    hosts, proxies = release.wait_for_pods("host", 3), release.wait_for_pods("proxy", 2)
    assert {pod["status"]["qosClass"] for pod in (*hosts.values(), *proxies.values())} == {"Guaranteed"}

    def tokens(pod: Json) -> list[Any]:
        sources = [
            source for volume in pod["spec"]["volumes"] for source in volume.get("projected", {}).get("sources", [])
        ]
        return [source for source in sources if "serviceAccountToken" in source]

    assert not any(tokens(pod) for pod in hosts.values())
    assert all(len(tokens(pod)) == 1 for pod in proxies.values())


def test_the_namespace_refuses_pods_with_more_rights(release: Release, cluster: Cluster) -> None:
    release.run("install")
    pod = next(iter(release.wait_for_pods("host", 3).values()))
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": pod["spec"]}
    made["spec"]["securityContext"] = {"runAsUser": 0}
    refused = cluster.kubectl("create", "--namespace", release.namespace, "--filename", "-", given=json.dumps(made))
    assert "violates PodSecurity" in refused.stderr


def test_a_volume_source_that_the_level_forbids_is_named_when_the_chart_is_installed(
    release: Release, cluster: Cluster
) -> None:
    setting = 'models.volume={"nfs":{"server":"nfs","path":"/models"}}'
    ended = cluster.helm("install", "recprocessor", CHART, "--namespace", release.namespace, "--set-json", setting)
    assert "restricted volume types" in ended.stdout + ended.stderr


def test_an_upgrade_keeps_secrets_and_replaces_hosts_one_at_a_time(release: Release) -> None:
    release.run("install")
    before = release.tokens()
    assert before.keys() == {"recprocessor-tokens", "recprocessor-proxy-tls"}
    release.wait_for_pods("host", 3)
    release.set_ready("host")
    release.run("upgrade", "replicas=5")
    old = release.wait_for_pods("host", 5)
    release.set_ready("host")
    assert release.tokens() == before

    release.run("upgrade", "replicas=5", 'host.podAnnotations={"changed":"1"}')
    replaced: list[str] = []
    while len(replaced) < len(old):
        new = _wait_for_one_more(release, old, replaced)
        # Until it is ready no other one is replaced; the API server and controllers get time to do so.
        _wait_for_observed(release)
        assert _replaced(release, old) == {*replaced, new}
        replaced.append(new)
        release.set_ready("host")
    assert replaced == [f"recprocessor-host-{number}" for number in (4, 3, 2, 1, 0)]
    wait_for(lambda: _set_of_hosts(release)["status"].get("updatedReplicas") == len(old), _LONG_S, "all updated")
    assert release.tokens() == before


def test_only_as_many_hosts_as_permitted_are_evicted(release: Release, cluster: Cluster) -> None:
    release.run("install")
    release.wait_for_pods("host", 3)
    release.set_ready("host")

    def budget() -> Json:
        found: Json = cluster.get("pdb", "recprocessor-host", release.namespace)["status"]
        return found

    wait_for(lambda: budget().get("disruptionsAllowed") == 1, _LONG_S, "a budget of one")
    assert budget()["expectedPods"] == 3

    def evict(number: int) -> Any:
        name = f"recprocessor-host-{number}"
        made = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = f"/api/v1/namespaces/{release.namespace}/pods/{name}/eviction"
        return cluster.kubectl("create", "--raw", path, "--filename", "-", given=json.dumps(made))

    assert evict(0).returncode == 0
    refused = evict(1)
    assert "would violate the pod's disruption budget" in refused.stderr
    release.wait_for_pods("host", 3)
    release.set_ready("host")
    wait_for(lambda: budget()["disruptionsAllowed"] == 1, _LONG_S, "a budget of one")
    assert evict(1).returncode == 0


def test_without_the_kinds_of_the_prometheus_operator_helm_says_what_is_missing(
    release: Release, cluster: Cluster
) -> None:
    options = ("--namespace", release.namespace, "--set", "serviceMonitor.enabled=true")
    ended = cluster.helm("install", "recprocessor", CHART, *options)
    assert ended.returncode != 0
    assert 'no matches for kind "ServiceMonitor"' in ended.stderr
    assert release.left() == set()


@pytest.mark.parametrize("kind", ["committed", "other values"])
def test_the_server_accepts_plain_manifests_in_a_dry_run(release: Release, cluster: Cluster, kind: str) -> None:
    text, count = PLAIN.read_text(encoding="utf-8"), len(plain())
    if kind != "committed":
        words = [word for setting in SETTINGS["network policies"] for word in ("--set-json", setting)]
        rendered = cluster.helm("template", "recprocessor", CHART, "--namespace", "recprocessor", *words)
        text, count = rendered.stdout, rendered.stdout.count("\nkind: ")
    text = text.replace("namespace: recprocessor\n", f"namespace: {release.namespace}\n")
    # Two dry runs: what clients send with `kubectl apply`, and with `kubectl apply --server-side`.
    for option in ("--server-side=false", "--server-side=true"):
        options = ("--dry-run=server", "--validate=strict", option, "--namespace", release.namespace)
        ended = cluster.kubectl("apply", *options, "--filename", "-", given=text)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        assert ended.stdout.count("(server dry run)") == count
    assert release.left() == set()


def test_a_key_that_the_server_does_not_know_would_be_found(release: Release, cluster: Cluster) -> None:
    text = PLAIN.read_text(encoding="utf-8").replace("  replicas: 3\n", "  replica: 3\n")
    options = ("--dry-run=server", "--validate=strict", "--namespace", release.namespace)
    ended = cluster.kubectl("apply", *options, "--filename", "-", given=text)
    assert 'unknown field "spec.replica"' in ended.stderr


def _set_of_hosts(release: Release) -> Json:
    (found,) = release.all("statefulsets", "--selector", "app.kubernetes.io/component=host")
    return found


def _wait_for_observed(release: Release) -> None:
    """Wait until the controller knows the newest specification."""

    def is_observed() -> bool:
        found = _set_of_hosts(release)
        return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

    wait_for(is_observed, _LONG_S, "the controller")


def _replaced(release: Release, old: dict[str, Json]) -> set[str]:
    """Return the names of pods that are not those of before, also such that are missing."""
    now = release.pods("host")
    return {
        name for name, pod in old.items() if now.get(name, {}).get("metadata", {}).get("uid") != pod["metadata"]["uid"]
    }


def _wait_for_one_more(release: Release, old: dict[str, Json], replaced: list[str]) -> str:
    """Wait until a further pod was replaced, and return its name."""

    def further() -> str:
        names = _replaced(release, old) - set(replaced)
        assert len(names) < 2
        name = next(iter(names), "")
        return name if name in release.pods("host") else ""

    found: str = wait_for(further, _LONG_S, "a pod that was replaced")
    return found
