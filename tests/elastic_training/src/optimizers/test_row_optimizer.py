# SPDX-License-Identifier: Apache-2.0
"""Each optimizer against NumPy, bit for bit over thousands of random steps, and against the published algorithm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.elastic_training.optimizer_formulas import AlgorithmOne, Formula, Setting
from helpers.elastic_training.optimizer_probe import NONZERO, RELEASE, ZERO, Probe, config_of

KINDS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl"]
PLAIN = [Setting(kind) for kind in KINDS] + [
    Setting("adagrad", initial_accumulator=1.0, epsilon=1e-3),
    Setting("adam", beta_1=0.5, beta_2=0.9, epsilon=1e-4),
    Setting("ftrl", l2_shrinkage=0.01, beta=0.3),
]
EACH_LAMBDA = [{"l1": 0.3}, {"l2": 0.2}, {"l21": 1.0}, {"l1": 0.1, "l2": 0.05, "l21": 0.5}]
RELEASED: list[dict[str, Any]] = [{"l21": 1.0, "release_after": 20}, {"l1": 1.5, "release_after": 7}]
LASSO = [replace(Setting(kind), **lambdas) for kind in KINDS for lambdas in [EACH_LAMBDA[-1], *RELEASED]]
# 16 is one vector, 13 is vectors of 8 and 4 and one float.
CASES = [(setting, 13 if number % 2 else 16) for number, setting in enumerate(PLAIN + LASSO)]
STEPS = 2000
ROWS = 24


def rate_at(step: int) -> float:
    """A schedule: warm-up from 0, then decay."""
    return 0.1 * min(1.0, (step - 1) / 5) / (1 + step / 1500)


def draws(dim: int, seed: int = 1) -> Any:
    """Yield (step, rows, gradients): random subsets; some rows come late, one has gradients 1000 times as large."""
    random = np.random.default_rng(seed)
    pull = random.normal(0, 0.3, (ROWS, dim)) * (random.random((ROWS, 1)) < 0.5)
    for step in range(1, STEPS + 1):
        seen = np.arange(ROWS) * 60 < step  # a new row every 60 steps
        rows = np.flatnonzero(seen & (random.random(ROWS) < 0.2 + 0.6 * (np.arange(ROWS) % 2)))
        gradients = random.normal(0, 1, (len(rows), dim)) * np.where(random.random((len(rows), 1)) < 0.05, 0, 0.2)
        gradients += pull[rows] * np.cos(step / 400)
        gradients[rows == 3] *= 1000
        yield step, rows, gradients.astype(np.float32)


def bits(array: NDArray[np.float32]) -> NDArray[np.uint32]:
    return (np.ascontiguousarray(array, np.float32) + np.float32(0)).view(np.uint32)  # -0 is 0


def name_of(setting: Setting | int) -> str:
    if isinstance(setting, int):
        return str(setting)
    changed = [f"{k}={v}" for k, v in vars(setting).items() if v != getattr(Setting("sgd"), k) and k != "kind"]
    return "-".join([setting.kind, *changed])


@pytest.mark.parametrize(
    ("setting", "dim"), CASES, ids=lambda value: name_of(value) if isinstance(value, Setting) else ""
)
def test_steps_equal_numpy_bit_for_bit(setting: Setting, dim: int, probe_library: Path) -> None:
    weights = np.random.default_rng(0).uniform(-0.05, 0.05, (ROWS, dim)).astype(np.float32)
    formula, probe = Formula(setting, weights), Probe(probe_library, config_of(setting), weights)
    released = zeros = 0
    for step, rows, gradients in draws(dim):
        due = formula.step(rows, gradients, rate_at(step), step)
        outcomes = probe.step(rows, gradients, rate_at(step), step)
        for number in rows[outcomes == RELEASE]:
            probe.init_slots(number)
        if probe.tells_outcomes:
            np.testing.assert_array_equal(rows[outcomes == RELEASE], due)
            nothing = ~probe.weights[rows].any(axis=1)
            np.testing.assert_array_equal(outcomes[nothing] != NONZERO, True)
            np.testing.assert_array_equal(outcomes == NONZERO, ~nothing)
        else:
            assert (outcomes == 255).all()
        if step % 25 == 0 and setting.release_after:
            swept = [number for number in range(ROWS) if probe.shall_release(number, step)]
            np.testing.assert_array_equal(swept, formula.release(step))
            for number in swept:
                probe.init_slots(number)
            released += len(swept)
        zeros += int((probe.weights[rows] == 0).sum()) if setting.l1 else int((outcomes == ZERO).sum())
        released += int((outcomes == RELEASE).sum())
        if step % 100 == 0 or step < 20:
            np.testing.assert_array_equal(bits(probe.weights), bits(formula.x), err_msg=f"step {step}")
            slots = probe.slots[:, : formula.slots().shape[1]]
            np.testing.assert_array_equal(bits(slots), bits(formula.slots()), err_msg=f"step {step}")
    assert np.isfinite(probe.weights).all()
    if setting.l1 or setting.l21:
        assert zeros > 80, "lasso has to be at work for the comparison to say anything"
    assert (released > 20) == (setting.release_after > 0)


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
@pytest.mark.parametrize("lambdas", EACH_LAMBDA, ids=str)
def test_lasso_is_algorithm_one(kind: str, lambdas: dict[str, float], probe_library: Path) -> None:
    setting = replace(Setting(kind), **lambdas)
    weights = np.random.default_rng(0).uniform(-0.05, 0.05, (ROWS, 8)).astype(np.float32)
    algorithm, probe = AlgorithmOne(setting, weights), Probe(probe_library, config_of(setting), weights)
    for step, rows, gradients in draws(8):
        rate = np.float32(0.1 / (1 + step / 1500))
        algorithm.step(rows, gradients, float(rate))
        probe.step(rows, gradients, float(rate), step)
        if step % 100 == 0:
            largest = np.abs(algorithm.x).max(axis=1, keepdims=True)
            error = np.abs(probe.weights - algorithm.x) / (largest + 0.01)
            assert error.max() < 2e-3, f"step {step}: row {error.max(axis=1).argmax()} differs by {error.max()}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_tiny_lambda_is_nearly_the_plain_optimizer(kind: str, probe_library: Path) -> None:
    weights = np.random.default_rng(0).uniform(-0.05, 0.05, (ROWS, 16)).astype(np.float32)
    plain = Probe(probe_library, config_of(Setting(kind)), weights)
    group = Probe(probe_library, config_of(Setting(kind, l21=1e-9)), weights)
    for step, rows, gradients in draws(16):
        rate = 0.1 / (1 + step / 1500)
        plain.step(rows, gradients, rate, step)
        group.step(rows, gradients, rate, step)
    np.testing.assert_allclose(group.weights, plain.weights, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_dimensions_of_zero_gradient_change_nothing_of_the_others(kind: str, probe_library: Path) -> None:
    """Padding: a row of 5 weights in 8, 16 or 20 steps like a row of 5, where the optimizer has no sum over the row."""
    random = np.random.default_rng(0)
    weights = random.normal(0, 0.1, (ROWS, 5)).astype(np.float32)
    setting = Setting(kind, l1=0.05, l2=0.1)
    narrow = Probe(probe_library, config_of(setting), weights)
    wide = {
        dim: Probe(probe_library, config_of(setting), np.pad(weights, ((0, 0), (0, dim - 5)))) for dim in (8, 16, 20)
    }
    for step, rows, gradients in draws(5):
        if step > 500:
            break
        narrow.step(rows, gradients, 0.1, step)
        for dim, probe in wide.items():
            scale = np.float32(np.sqrt(dim / 5)) if kind == "rowwise_adagrad" else np.float32(1)
            probe.step(rows, np.pad(gradients * scale, ((0, 0), (0, dim - 5))), 0.1 / scale, step)
    for probe in wide.values():
        assert not probe.weights[:, 5:].any()
        if kind != "rowwise_adagrad":
            np.testing.assert_array_equal(bits(probe.weights[:, :5]), bits(narrow.weights))


@pytest.mark.parametrize("kind", ["adam", "adagrad", "ftrl"])
def test_a_late_row_steps_as_an_early_one_did(kind: str, probe_library: Path) -> None:
    weights = np.full((2, 8), 0.01, np.float32)
    probe = Probe(probe_library, config_of(Setting(kind)), weights)
    gradients = np.random.default_rng(0).normal(0, 1, (1000, 8)).astype(np.float32)
    for step in range(1000):
        probe.step(np.array([0]), gradients[step : step + 1], 0.01, step + 1)
        if step >= 900:
            probe.step(np.array([1]), gradients[step - 900 : step - 899], 0.01, step + 1)
    early = Probe(probe_library, config_of(Setting(kind)), weights)
    for step in range(100):
        early.step(np.array([0]), gradients[step : step + 1], 0.01, step + 1)
    np.testing.assert_array_equal(bits(probe.rows[1]), bits(early.rows[0]))


def test_updates_are_counted_past_32_bits(probe_library: Path) -> None:
    """The number of the update since which a row is zero has 32 bits, and 0 means that it is not."""
    probe = Probe(probe_library, config_of(Setting("sgd", l21=1.0, release_after=10)), np.zeros((1, 4), np.float32))
    for first in (5, 2**32 - 3, 2**32, 2**40 + 7):
        probe.init_slots(0)
        assert not probe.shall_release(0, first + 100), "a row that no gradient reached yet is not known to be zero"
        outcomes = [probe.step(np.array([0]), np.zeros((1, 4)), 0.1, step)[0] for step in range(first, first + 9)]
        assert outcomes == [ZERO] * 9
        assert not probe.shall_release(0, first + 9)
        assert probe.shall_release(0, first + 11)
        assert not probe.shall_release(0, first - 3), "the count of updates began again"
        assert probe.step(np.array([0]), np.zeros((1, 4)), 0.1, first + 11) == [RELEASE]


@pytest.mark.parametrize("power", [-0.3, -1.0, 0.0])
def test_ftrl_takes_other_powers(power: float, probe_library: Path) -> None:
    setting = Setting("ftrl", learning_rate_power=power, l1=0.01, l21=0.05)
    weights = np.random.default_rng(0).uniform(-0.05, 0.05, (ROWS, 13)).astype(np.float32)
    formula, probe = Formula(setting, weights.astype(np.float64)), Probe(probe_library, config_of(setting), weights)
    for step, rows, gradients in draws(13):
        if step > 300:
            break
        gradients[rows == 3] /= 1000  # with power -1 its accumulator would swallow every other term
        formula.step(rows, gradients, 0.05, step)
        probe.step(rows, gradients, 0.05, step)
    np.testing.assert_allclose(probe.weights, formula.x, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "lamb"}, "optimizer: kind is 'lamb', expected one of 'sgd', 'adagrad'"),
        ({"kind": "adam", "beta_1": 1.0}, "optimizer adam: beta_1"),
        ({"kind": "adam", "epsilon": 0}, "optimizer adam: epsilon"),
        ({"kind": "adagrad", "l21": -1}, "optimizer adagrad: l21"),
        ({"kind": "adagrad", "l21": 1, "release_after": -1}, "optimizer adagrad: release_after"),
        ({"kind": "adagrad", "initial_accumulator": 0, "epsilon": 0}, "optimizer adagrad: initial_accumulator and"),
        ({"kind": "sgd", "l2": 1, "release_after": 5}, "optimizer sgd: release_after is 5 without l1 or l21"),
        ({"kind": "ftrl", "learning_rate_power": 0.5}, "optimizer ftrl: learning_rate_power"),
        ({"kind": "rowwise_adagrad", "beta_1": 0.5}, "optimizer rowwise_adagrad:.*beta_1"),
    ],
    ids=str,
)
def test_a_bad_setting_is_refused_by_name(config: dict[str, Any], message: str, probe_library: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Probe(probe_library, config, np.zeros((1, 4), np.float32))
