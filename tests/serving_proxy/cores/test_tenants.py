# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.cores.tenants import DEFAULT_SLO_MS, manual_cpus, tenants
from serving_proxy.deploy.changes import promote
from serving_proxy.records.models import Settings


def test_a_baseline_comes_first_and_variants_inherit_its_slo() -> None:
    model = settled(deployed(deployed(deployed(None, 3), 4, traffic=1000, slo_p99_ms=9.0), 5, traffic=1000))
    found = tenants({"ranking": model})
    assert [(tenant.name, tenant.role, tenant.slo_ms) for tenant in found] == [
        ("ranking/3", "baseline", DEFAULT_SLO_MS),
        ("ranking/4", "variant", 9.0),
        ("ranking/5", "variant", DEFAULT_SLO_MS),
    ]
    assert [tenant.like for tenant in found] == [None, "ranking/3", "ranking/3"]


def test_versions_kept_for_a_rollback_need_no_cores() -> None:
    model = settled(promote(settled(deployed(deployed(None, 3), 4)), 4).model)
    assert model.last_good == 3
    assert [tenant.name for tenant in tenants({"ranking": model})] == ["ranking/4"]


def test_cpus_that_an_operator_chose_are_not_divided() -> None:
    model = deployed(deployed(None, 3), 4, traffic=1000, settings=Settings(cpuset="1;4-5"))
    model = settled(deployed(model, 5, traffic=1000, settings=Settings(config={"execution": "inline"})))
    assert [tenant.name for tenant in tenants({"ranking": model})] == ["ranking/3"]
    assert manual_cpus({"ranking": model}) == {1, 4, 5}


def test_a_model_without_a_baseline_has_no_tenants() -> None:
    assert tenants({"ranking": deployed(None, 3).change(baseline=None)}) == ()
