# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any

import keras
import pytest

import elastic_training as et

SETTINGS: list[dict[str, Any]] = [
    {},
    {"key": "string", "seed": 2**63 - 1, "initializer": et.Normal(0.1), "default": et.Constant(0.5)},
    {"optimizer": et.GroupAdam(0.01, l1=1e-5, l2=1e-4, l21=1e-3, release_after=100, clipnorm=1.0)},
    {"optimizer": et.Ftrl(keras.optimizers.schedules.ExponentialDecay(0.1, 100, 0.9)), "admission": et.CountFilter(3)},
    {"admission": et.CountingFilter(5, 10_000, half_life_s=3600.0), "eviction": et.Ttl(30)},
    {
        "admission": et.PoissonFilter(5, horizon=10**6, prior="none"),
        "eviction": et.L2Norm(1e-3, triggers=et.Rows(10**6)),
    },
    {"eviction": et.Score(triggers=(et.Bytes(2**30, keep=0.5), et.Interval(60)))},
    {"admission": et.PoissonFilter(5, rare_share=0.1, expected_keys=1000)},
    {"admission": et.CountingFilter(5, 1000, half_life_occurrences=1e6)},
    {"eviction": et.CountDecay(half_life_days=1.5, minimum=2, triggers=())},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_config_survives_json(settings: dict[str, Any]) -> None:
    config = et.TableConfig("user_id", 16, **settings)
    again = et.TableConfig.from_config(json.loads(json.dumps(config.to_config())))
    assert again == config
    assert again.to_json() == config.to_json()


def test_json_of_a_table_has_no_learning_rate() -> None:
    fields = json.loads(et.TableConfig("user_id", 16, optimizer=et.GroupAdagrad(0.05, l21=1e-4, clipvalue=1)).to_json())
    assert fields["optimizer"] == {
        "kind": "adagrad",
        "initial_accumulator": 0.1,
        "epsilon": 1e-7,
        "l1": 0.0,
        "l2": 0.0,
        "l21": 1e-4,
        "release_after": 0,
    }
    assert fields["initializer"] == {"kind": "uniform", "low": -0.05, "high": 0.05}
    assert "eviction" not in fields


def test_seed_depends_on_the_name_alone() -> None:
    seeds = {et.TableConfig(name, 4).seed for name in ("a", "b")}
    assert len(seeds) == 2
    assert et.TableConfig("a", 4).seed == et.TableConfig("a", 8).seed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 0}, "table 'user_id': dim is 0, expected an integer from 1"),
        ({"dim": 2.0}, "dim is 2.0"),
        ({"key": "int32"}, "key is 'int32', expected 'int64' or 'string'"),
        ({"seed": -1}, "seed is -1"),
        ({"name": ""}, "name ''"),
        ({"optimizer": "momentum"}, "optimizer: kind 'momentum', expected one of adagrad, adam"),
        ({"optimizer": keras.optimizers.Adam()}, "optimizer: <keras.* expected one of Adagrad, Adam"),
        (
            {"optimizer": et.GroupSGD(0.1, l21=1e-3), "default": et.Constant(1.0)},
            "default is Constant.*, expected Zeros",
        ),
        ({"default": et.Uniform()}, "expected Zeros or Constant"),
        (
            {"admission": {"kind": "bloom"}},
            "admit: kind 'bloom', expected one of always, count, counting_filter, poisson",
        ),
        ({"admission": {"kind": "count", "limit": 5}}, "admit count: unknown field 'limit'"),
        ({"admission": {"kind": "poisson", "threshold": 16, "expected_keys": 9}}, "threshold is 16, .* from 2 to 15"),
        (
            {
                "admission": {"kind": "counting_filter", "threshold": 2, "expected_keys": 9, "half_life_s": 1.0}
                | {"half_life_occurrences": 1.0}
            },
            "both set",
        ),
        ({"eviction": et.AlwaysAdmit()}, "evict: AlwaysAdmit.*, expected one of CountDecay, L2Norm, Score, Ttl"),
    ],
)
def test_wrong_setting_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        et.TableConfig(**{"name": "user_id", "dim": 16, **settings})
