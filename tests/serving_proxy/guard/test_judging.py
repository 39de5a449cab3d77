# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.proxies.host_statistics import shadow_version, stats, version_stats
from serving_proxy.counters.stats_file import read_tallies
from serving_proxy.counters.tally import Tally
from serving_proxy.guard.judging import judge
from serving_proxy.guard.verdict import Evidence, Role, Ruling, Verdict
from serving_proxy.records.guard_settings import GuardSettings

DEFAULT = GuardSettings()


def _tally(**values: Any) -> Tally:
    return read_tallies(stats({1: version_stats(**values)}))["ranking", 1]


def _shadow(*values: Any, **more: Any) -> Tally:
    data = stats({}) | {"shadow": stats({1: shadow_version(*values, **more)})}
    return read_tallies(data)["ranking", 1]


def _arm(tally: Tally, baseline: Tally | None = None, settings: GuardSettings = DEFAULT, **more: Any) -> Verdict:
    return judge(settings, Evidence(Role.ARM, tally, baseline or _tally(ok=10_000), **more))


def test_few_requests_give_no_verdict() -> None:
    verdict = _arm(_tally(ok=0, INTERNAL=199))
    assert verdict.ruling == Ruling.WAIT
    assert verdict.reason == "199 requests in 60 s, expected 200"


def test_errors_beyond_the_limit_are_bad_and_the_verdict_has_the_numbers() -> None:
    verdict = _arm(_tally(ok=950, INTERNAL=50))
    assert verdict.ruling == Ruling.BAD
    assert "50 of 1000 requests failed (5 %), baseline 0 %" in verdict.reason
    assert "expected at most 1 %" in verdict.reason
    (errors,) = [finding for finding in verdict.findings if finding.what == "errors"]
    assert (errors.value, errors.limit, errors.sample) == (5.0, 1.0, 1000)


def test_errors_above_the_limit_by_chance_are_not_bad() -> None:
    assert _arm(_tally(ok=394, INTERNAL=6)).ruling == Ruling.WAIT


def test_errors_that_the_baseline_has_too_are_not_blamed_on_the_version() -> None:
    tally, baseline = _tally(ok=900, INVALID_ARGUMENT=100), _tally(ok=9000, INVALID_ARGUMENT=1000)
    assert _arm(tally, baseline).ruling == Ruling.OK
    assert _arm(tally).ruling == Ruling.BAD


@pytest.mark.parametrize("outcome", ["CANCELLED", "RESOURCE_EXHAUSTED"])
def test_cancelled_and_shed_requests_are_not_judged(outcome: str) -> None:
    assert _arm(_tally(ok=500, **{outcome: 5000})).ruling == Ruling.OK


def test_refusals_alone_do_not_make_a_baseline_bad() -> None:
    def ruling(**outcomes: int) -> Ruling:
        return judge(DEFAULT, Evidence(Role.BASELINE, _tally(ok=500, **outcomes))).ruling

    assert ruling(INVALID_ARGUMENT=5000, DEADLINE_EXCEEDED=100) == Ruling.OK
    assert ruling(INTERNAL=100) == Ruling.BAD


def test_p99_above_the_slo_is_bad() -> None:
    verdict = _arm(_tally(ok=1000, milliseconds={3.0: 950, 50.0: 50}), slo_p99_ms=20.0)
    assert verdict.ruling == Ruling.BAD
    assert "50 above the SLO of 20 ms" in verdict.reason


def test_a_variant_that_is_as_slow_as_its_baseline_is_not_to_blame() -> None:
    slow, baseline = _tally(ok=1000, milliseconds={15.0: 900, 50.0: 100}), _tally(ok=9000, milliseconds={45.0: 9000})
    verdict = _arm(slow, baseline, slo_p99_ms=20.0)
    assert verdict.ruling == Ruling.WAIT
    assert "100 above the SLO of 20 ms, the baseline's p99 " in verdict.reason
    assert "not certainly 1.25 times as slow as the baseline" in verdict.reason
    # The same beside a baseline that is fast, one of too few requests, and as a baseline.
    for other in (_tally(ok=9000), _tally(ok=199, milliseconds={45.0: 199})):
        assert _arm(slow, other, slo_p99_ms=20.0).ruling == Ruling.BAD
    assert judge(DEFAULT, Evidence(Role.BASELINE, slow, None, 20.0)).ruling == Ruling.BAD


def test_a_variant_that_is_slower_than_a_slow_baseline_is_bad() -> None:
    baseline = _tally(ok=9000, milliseconds={45.0: 9000})
    verdict = _arm(_tally(ok=1000, milliseconds={45.0: 900, 150.0: 100}), baseline, slo_p99_ms=20.0)
    assert verdict.ruling == Ruling.BAD
    (found,) = [finding for finding in verdict.findings if finding.what == "p99"]
    assert found.value is not None
    assert found.baseline is not None
    # Both as far as buckets tell, and the limit that follows.
    assert 130 < found.value < 180
    assert 40 < found.baseline < 50
    assert found.limit == 1.25 * found.baseline
    assert f"at least 7.4 % above {found.limit:.3g} ms" in verdict.reason


def test_a_baseline_with_few_requests_is_not_compared_with() -> None:
    # 200 requests tell little of a 99th percentile: 4 % beyond it may be the baseline's own share.
    few, many = ({3.0: n * 99 // 100, 50.0: n // 100} for n in (200, 20_000))
    variant = _tally(ok=1000, milliseconds={3.0: 960, 50.0: 40})
    assert _arm(variant, _tally(ok=200, milliseconds=few), slo_p99_ms=20.0).ruling == Ruling.WAIT
    assert _arm(variant, _tally(ok=20_000, milliseconds=many), slo_p99_ms=20.0).ruling == Ruling.BAD


def test_p99_without_an_slo_is_not_judged() -> None:
    assert _arm(_tally(ok=1000, milliseconds={5000.0: 1000})).ruling == Ruling.OK


def test_p99_above_the_slo_with_few_requests_waits() -> None:
    assert _arm(_tally(ok=300, milliseconds={3.0: 295, 50.0: 5}), slo_p99_ms=20.0).ruling == Ruling.WAIT
    assert _arm(_tally(ok=300, milliseconds={3.0: 298, 50.0: 2}), slo_p99_ms=20.0).ruling == Ruling.OK


def test_nan_scores_are_bad() -> None:
    verdict = _arm(_tally(ok=1000, scores=(400, 40)))
    assert verdict.ruling == Ruling.BAD
    assert "40 of 400 responses with NaN or infinite scores" in verdict.reason


def test_nan_scores_of_few_responses_are_not_judged() -> None:
    assert _arm(_tally(ok=1000, scores=(150, 1))).ruling == Ruling.OK


def test_scores_of_one_response_count_once() -> None:
    data = version_stats(ok=1000)
    # One answer of 1000 rows, all NaN, among 500.
    data["scores"] = {"answers": 500, "count": 500_000, "nan": 1000, "infinite": 0}
    assert _arm(read_tallies(stats({1: data}))["ranking", 1]).ruling == Ruling.WAIT


@pytest.mark.parametrize(("correlation", "ruling"), [(0.95, Ruling.OK), (0.899, Ruling.WAIT), (0.7, Ruling.BAD)])
def test_rank_correlation_of_a_shadow_is_judged(correlation: float, ruling: Ruling) -> None:
    settings = GuardSettings(min_correlation=0.9)
    assert judge(settings, Evidence(Role.SHADOW, _shadow(500, correlation=correlation))).ruling == ruling


def test_score_difference_of_a_shadow_is_judged() -> None:
    subject = Evidence(Role.SHADOW, _shadow(500))
    assert judge(GuardSettings(max_difference=0.001), subject).ruling == Ruling.BAD
    assert judge(GuardSettings(max_difference=0.02), subject).ruling == Ruling.OK


def test_failed_mirrored_requests_and_nan_scores_of_a_shadow_are_judged() -> None:
    assert judge(DEFAULT, Evidence(Role.SHADOW, _shadow(500, failed=100))).ruling == Ruling.BAD
    assert judge(DEFAULT, Evidence(Role.SHADOW, _shadow(500, nan=100))).ruling == Ruling.BAD
    assert judge(DEFAULT, Evidence(Role.SHADOW, _shadow(500))).ruling == Ruling.OK


def test_a_variant_within_its_limits_long_enough_is_promoted() -> None:
    settings = GuardSettings(promote_after_s=600)
    assert _arm(_tally(ok=1000), settings=settings, within_s=599).ruling == Ruling.OK
    assert _arm(_tally(ok=1000), settings=settings, within_s=600).ruling == Ruling.PROMOTE
    assert judge(settings, Evidence(Role.SHADOW, _shadow(500), within_s=600)).ruling == Ruling.OK


def test_the_guard_that_is_off_judges_nothing() -> None:
    assert _arm(_tally(ok=0, INTERNAL=1000), settings=GuardSettings(action="off")).ruling == Ruling.WAIT


def test_a_good_version_stays_however_often_it_is_judged() -> None:
    """A version at half the limit is never called bad in 4,000 verdicts; one at eight times the limit is."""
    dice = np.random.default_rng(20261121)
    baseline = _tally(ok=10_000, INTERNAL=10)

    def looks(rate: float, times: int) -> list[Ruling]:
        found = []
        for failed in dice.binomial(400, rate, times).tolist():
            found.append(_arm(Tally(outcomes={"OK": 400 - failed, "INTERNAL": failed}), baseline).ruling)
        return found

    assert Ruling.BAD not in looks(0.005, 4000)
    assert looks(0.08, 200).count(Ruling.BAD) > 180
