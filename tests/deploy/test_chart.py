# SPDX-License-Identifier: Apache-2.0
"""Check the values of the chart, and, where helm is installed, what it renders from them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from helpers.deploy.manifests import CHART, PLAIN, check_command, container, containers, one, pod_specs, read_manifests
from helpers.system.programs import ROOT, skip_or_fail
from helpers.system.tool_modules import load_tool

manifests = load_tool("make_manifests")
SCHEMA = json.loads((CHART / "values.schema.json").read_bytes())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
CHART_FILE = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
TEMPLATES = "\n".join(file.read_text(encoding="utf-8") for file in sorted((CHART / "templates").iterdir()))
# Kinds of operators, whose schemas kubernetes-validate does not have.
CUSTOM = {"ServiceMonitor"}


@pytest.fixture(scope="module")
def helm() -> str:
    """The path of helm."""
    found: str | None = manifests.find_helm()
    if found is None:
        skip_or_fail("helm: not installed, so the chart is not rendered; `make build/deploy-tools/helm` gets it")
    return found


def render(helm: str, *settings: str) -> list[dict[str, Any]]:
    return read_manifests(manifests.render(helm, *[word for setting in settings for word in ("--set-json", setting)]))


def test_the_default_values_satisfy_the_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA, jsonschema.Draft7Validator)


def test_the_schema_knows_the_same_values_as_the_file() -> None:
    assert SCHEMA["properties"].keys() - {"global"} == VALUES.keys()
    for name, value in VALUES.items():
        known = SCHEMA["properties"][name].get("properties")
        if known is not None:
            assert known.keys() == value.keys(), name


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": {"cpus": 1.5}},
        {"host": {"cpus": 0}},
        {"host": {"program": "rust"}},
        {"host": {"clientCa": "ca.crt"}},
        {"host": {"memory": "8 GB"}},
        {"proxy": {"lease": "etcd"}},
        {"sharedStore": {"url": "hdfs://models/proxies"}},
        {"modelStore": {"url": "s4://models"}},
        {"sharedStore": {"url": "s3://models/proxies"}},
        {"proxy": {"replicas": 0}},
        {"user": 0},
        {"replica": 3},
        {"podDisruptionBudget": {"maxUnavailable": "all"}},
    ],
    ids=json.dumps,
)
def test_the_schema_refuses_wrong_values(wrong: dict[str, Any]) -> None:
    merged = {**VALUES, **{k: {**VALUES[k], **v} if isinstance(v, dict) else v for k, v in wrong.items()}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged, SCHEMA, jsonschema.Draft7Validator)


def test_templates_use_every_value() -> None:
    used = set(re.findall(r"(?<![\w.])[$]?\.(?:Values\.)?(\w+)|\$(?:host|proxy|policy|of)\.(\w+)", TEMPLATES))
    names = {name for pair in used for name in pair} | set(re.findall(r"\.Values\.\w+\.(\w+)", TEMPLATES))
    # Names of values in lists of names.
    names |= set(re.findall(r'"(\w+)"', TEMPLATES))
    sections = [value for value in VALUES.values() if isinstance(value, dict)]
    assert [key for section in sections for key in section if key not in names] == []


def test_the_chart_has_the_version_of_the_package() -> None:
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert project is not None
    assert CHART_FILE["appVersion"] == CHART_FILE["version"] == project[1]


def test_the_committed_manifests_are_what_helm_renders(helm: str) -> None:
    assert PLAIN.read_text(encoding="utf-8") == manifests.plain_manifests(helm)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ['host.program="python"', "replicas=1", "proxy.replicas=3"],
        ['host.tlsSecret="tls"', 'host.clientCa="ca.crt"', 'host.extraArgs=["--max-connections","64"]'],
        ['models.volume={"nfs":{"server":"nfs","path":"/m"}}', 'models.mountPath="/m"', 'sharedStore.storageClass=""'],
        ['modelStore={"url":"s3://models","secret":"s3"}', 'proxy.extraArgs=["--load-timeout","60"]'],
        ["serviceMonitor.enabled=true", "networkPolicy.enabled=false"],
        ['proxy.lease="store"'],
        ['sharedStore.url="s3://models/proxies"', 'modelStore.url="s3://models"'],
        ['networkPolicy.apiServers=[{"ipBlock":{"cidr":"10.0.0.1/32"}}]'],
        ['networkPolicy.clients=[{"namespaceSelector":{}}]', 'networkPolicy.admins=[{"podSelector":{}}]'],
        ['host.tolerations=[{"key":"serving","operator":"Exists"}]', 'image.registry="registry.example.com/x/"'],
    ],
    ids=lambda settings: settings[0] if settings else "default",
)
def test_other_values_give_valid_manifests(helm: str, settings: list[str]) -> None:
    rendered = render(helm, *settings)
    for manifest in rendered:
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, "1.30", strict=True)
    for found in containers(rendered):
        check_command(found["command"], found["args"])


def test_generated_secrets_have_what_the_pods_need(helm: str) -> None:
    rendered = render(helm)
    assert one(rendered, "Secret", "recprocessor-tokens")["data"].keys() == {"admin-token", "agent-token"}
    assert one(rendered, "Secret", "recprocessor-proxy-tls")["data"].keys() == {"ca.crt", "tls.crt", "tls.key"}


def test_without_a_lease_of_kubernetes_no_pod_gets_a_token(helm: str) -> None:
    rendered = render(helm, 'proxy.lease="store"')
    assert not any(spec["automountServiceAccountToken"] for spec in pod_specs(rendered))
    assert {each["kind"] for each in rendered}.isdisjoint({"Role", "RoleBinding"})


def test_a_bucket_replaces_the_folder_that_proxies_share(helm: str) -> None:
    rendered = render(helm, 'sharedStore.url="s3://models/proxies"', 'modelStore.url="s3://models"')
    arguments = container(rendered, "proxy")["args"]
    assert arguments[arguments.index("--shared-store") + 1] == "s3://models/proxies"
    assert "shared" not in {volume["name"] for spec in pod_specs(rendered) for volume in spec["volumes"]}
    # Such a cluster may have no storage class for the claims.
    assert "PersistentVolumeClaim" not in {each["kind"] for each in rendered}
    models = [volume for spec in pod_specs(rendered) for volume in spec["volumes"] if volume["name"] == "models"]
    assert models == [{"name": "models", "emptyDir": {}}] * 2


def test_another_release_has_its_own_names(helm: str) -> None:
    text = manifests.render(helm, release="other")
    proxies = [word for word in container(read_manifests(text), "agent")["args"] if word.startswith("https://")]
    assert proxies[0] == "https://other-recprocessor-proxy-0.other-recprocessor-proxies.recprocessor.svc:8502"


def test_helm_refuses_wrong_values(helm: str) -> None:
    with pytest.raises(ValueError, match="cpus"):
        manifests.render(helm, "--set-json", "host.cpus=1.5")


@pytest.mark.long
def test_kubeconform_accepts_the_manifests() -> None:
    program = shutil.which("kubeconform", path=str(ROOT / "build" / "deploy-tools")) or shutil.which("kubeconform")
    if program is None:
        pytest.skip("kubeconform: not installed; `make deploy-tools` compiles it")
    ended = subprocess.run([program, "-strict", str(PLAIN)], capture_output=True, text=True, check=False)
    # It fetches the schemas.
    if "no such host" in ended.stdout + ended.stderr:
        pytest.skip("kubeconform: no network")
    assert ended.returncode == 0, ended.stdout
