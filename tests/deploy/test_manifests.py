# SPDX-License-Identifier: Apache-2.0
"""Check the committed manifests: against the schemas of Kubernetes, and against the programs that they start."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from helpers.deploy.manifests import (
    RUNTIME,
    check_command,
    container,
    containers,
    one,
    parse_verb,
    plain,
    pod_specs,
    read_manifests,
)

PLAIN = plain()
KSERVE = read_manifests(RUNTIME.read_text(encoding="utf-8"))
ALL = PLAIN + KSERVE


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_manifests_satisfy_the_schemas_of_kubernetes(version: str) -> None:
    for manifest in PLAIN:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_an_unknown_key_would_be_found() -> None:
    manifest = one(PLAIN, "StatefulSet", "recprocessor-host")
    wrong = {**manifest, "spec": {**manifest["spec"], "replica": 3}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.30", strict=True)


def test_the_containers_of_the_serving_runtime_satisfy_the_schema_of_pods() -> None:
    (runtime,) = KSERVE
    spec = {key: runtime["spec"][key] for key in ("containers", "volumes", "securityContext")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    kubernetes_validate.validate(pod, "1.30", strict=True)


@pytest.mark.parametrize("name", ["agent", "host", "proxy", "kserve-container"])
def test_programs_accept_their_command_lines(name: str) -> None:
    found = container(ALL, name)
    check_command(found["command"], found["args"])


@pytest.mark.parametrize("verb", ["serve", "agent"])
def test_an_unknown_option_would_be_found(verb: str) -> None:
    with pytest.raises(Exception, match="No such option: --replica"):
        parse_verb(verb, ["--replica", "3"])


@pytest.mark.parametrize("found", containers(ALL), ids=lambda found: found["name"])
def test_containers_may_do_nothing_but_serve(found: dict[str, Any]) -> None:
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("spec", pod_specs(ALL), ids=["host", "proxy", "kserve"])
def test_pods_run_as_an_ordinary_user(spec: dict[str, Any]) -> None:
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def test_only_proxies_get_a_token_of_the_cluster() -> None:
    accounts = [each for each in PLAIN if each["kind"] == "ServiceAccount"]
    assert [account["automountServiceAccountToken"] for account in accounts] == [False, False]
    tokens = {
        each["metadata"]["name"]: (spec["serviceAccountName"], spec["automountServiceAccountToken"])
        for each in PLAIN
        if each["kind"] == "StatefulSet" and (spec := each["spec"]["template"]["spec"])
    }
    assert tokens == {"recprocessor-host": ("recprocessor", False), "recprocessor-proxy": ("recprocessor-proxy", True)}


def test_proxies_may_write_their_lease_and_nothing_else() -> None:
    arguments = container(PLAIN, "proxy")["args"]
    name = arguments[arguments.index("--lease") + 1].removeprefix("kubernetes:")
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert one(PLAIN, "Role", "recprocessor-proxy")["rules"] == [
        {**leases, "verbs": ["create"]},
        {**leases, "resourceNames": [name], "verbs": ["get", "update"]},
    ]
    binding = one(PLAIN, "RoleBinding", "recprocessor-proxy")
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "recprocessor-proxy",
    }
    subject = {"kind": "ServiceAccount", "name": "recprocessor-proxy", "namespace": "recprocessor"}
    assert binding["subjects"] == [subject]


@pytest.mark.parametrize("found", containers(ALL), ids=lambda found: found["name"])
def test_resources_make_the_quality_of_service_guaranteed(found: dict[str, Any]) -> None:
    resources = found["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"].keys() == {"cpu", "memory"}


def test_hosts_get_whole_cpus() -> None:
    assert container(PLAIN, "host")["resources"]["limits"]["cpu"].isdecimal()


@pytest.mark.parametrize("found", containers(ALL), ids=lambda found: found["name"])
def test_all_folders_that_a_command_line_names_are_volumes(found: dict[str, Any]) -> None:
    mounts = {mount["mountPath"] for mount in found["volumeMounts"]}
    # KServe mounts the model itself.
    mounts |= {"/mnt/models"} if found["name"] == "kserve-container" else set()
    paths = [text.removeprefix("file://") for text in found["args"] if text.removeprefix("file://").startswith("/")]
    assert paths
    assert [path for path in paths if not any(f"{path}/".startswith(f"{mount}/") for mount in mounts)] == []
    assert "/tmp" in mounts


def test_services_and_budgets_select_pods() -> None:
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in PLAIN if each["kind"] == "StatefulSet"]
    selectors = [each["spec"]["selector"] for each in PLAIN if each["kind"] == "Service"]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in PLAIN if each["kind"] == "PodDisruptionBudget"]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in PLAIN if each["kind"] == "NetworkPolicy"]
    assert len(selectors) == 7
    for selector in selectors:
        assert sum(selector.items() <= labels.items() for labels in pods) == 1


def test_a_host_has_time_to_end_before_it_is_killed() -> None:
    spec = one(PLAIN, "StatefulSet", "recprocessor-host")["spec"]["template"]["spec"]
    host = container(PLAIN, "host")
    drain = int(host["args"][host["args"].index("--drain-seconds") + 1])
    assert spec["terminationGracePeriodSeconds"] > host["lifecycle"]["preStop"]["sleep"]["seconds"] + drain


def test_agents_know_every_proxy() -> None:
    servers = parse_verb("agent", container(PLAIN, "agent")["args"])["server"]
    proxies = one(PLAIN, "StatefulSet", "recprocessor-proxy")["spec"]
    domain = f"{proxies['serviceName']}.recprocessor.svc"
    assert list(servers) == [f"https://recprocessor-proxy-{i}.{domain}:8502" for i in range(proxies["replicas"])]
