# SPDX-License-Identifier: Apache-2.0
"""Judge counters against limits.

A limit counts as exceeded only if the whole interval of the value lies beyond it, and as kept if the best estimate is
within it. Between the two the guard waits. It judges every second, on windows that overlap. The default confidence is
therefore so high that a version at half its limit is never found bad.
"""

from __future__ import annotations

from serving_proxy.counters.histogram import Histogram
from serving_proxy.counters.tally import Scores, Tally
from serving_proxy.guard.bounds import excess, mean, quantile, wilson
from serving_proxy.guard.verdict import Evidence, Finding, Role, Ruling, Verdict
from serving_proxy.records.guard_settings import GuardSettings

# The p99 exceeds its limit if more than this percentage of the requests took longer.
_SLOW_PERCENT = 1.0
# A variant that misses its SLO is to blame only if its p99 exceeds the baseline's by this factor: a slowdown of both is
# not the variant's fault. Each histogram bucket of the hosts is 1.19 times as wide as the one before, so a smaller
# factor could not be measured.
SLOWER = 1.25


def judge(settings: GuardSettings, subject: Evidence) -> Verdict:
    """Judge a version by its counters within the window."""
    if settings.action == "off":
        return Verdict(Ruling.WAIT, "the guard is off")
    sample = subject.tally.mirrored if subject.role == Role.SHADOW else subject.tally.judged
    if sample < settings.min_requests:
        kind = "mirrored requests" if subject.role == Role.SHADOW else "requests"
        return Verdict(Ruling.WAIT, f"{sample} {kind} in {settings.window_s:g} s, expected {settings.min_requests}")
    findings = tuple(
        finding for finding in _findings(settings, subject, quantile(settings.confidence)) if finding is not None
    )
    if not findings:
        return Verdict(Ruling.OK, "no limit is set")
    for ruling in (Ruling.BAD, Ruling.WAIT):
        texts = [finding.text for finding in findings if finding.ruling == ruling]
        if texts:
            return Verdict(ruling, "; ".join(texts), findings)
    texts = [finding.text for finding in findings]
    if settings.promote_after_s is not None and subject.role == Role.ARM:
        if subject.within_s >= settings.promote_after_s:
            texts.append(f"within its limits for {subject.within_s:.0f} s, expected {settings.promote_after_s:g} s")
            return Verdict(Ruling.PROMOTE, "; ".join(texts), findings)
        texts.append(
            f"promoted after {settings.promote_after_s:g} s within its limits, {subject.within_s:.0f} s so far"
        )
    return Verdict(Ruling.OK, "; ".join(texts), findings)


def _findings(settings: GuardSettings, subject: Evidence, z: float) -> list[Finding | None]:
    return [
        _errors(settings, subject, z),
        _latency(settings, subject, z),
        _nan(settings, subject, z),
        _correlation(settings, subject.tally, z),
        _difference(settings, subject.tally, z),
    ]


def _errors(settings: GuardSettings, subject: Evidence, z: float) -> Finding | None:
    if settings.error_percent is None:
        return None
    tally, baseline = subject.tally, subject.baseline
    if subject.role == Role.SHADOW:
        hits, trials = tally.shadow.get("failed", 0), tally.mirrored
        return _rate("errors", "mirrored requests failed", hits, trials, None, settings.error_percent, z)
    if baseline is not None and baseline.judged >= settings.min_requests:
        # Clients that send invalid requests send them to both.
        against = (float(baseline.failures), baseline.judged)
        return _rate("errors", "requests failed", tally.failures, tally.judged, against, settings.error_percent, z)
    # Without a baseline to compare with, errors that a client may have caused are not counted.
    return _rate("errors", "requests failed", tally.faults, tally.judged, None, settings.error_percent, z)


def _nan(settings: GuardSettings, subject: Evidence, z: float) -> Finding | None:
    tally, baseline = subject.tally, subject.baseline
    scores = tally.scores + tally.shadow_scores
    if settings.nan_percent is None or scores.answers < settings.min_requests:
        return None
    measure = tally.baseline_scores + (baseline.scores if baseline is not None else Scores())
    against = (measure.bad, measure.answers) if measure.answers >= settings.min_requests else None
    return _rate("nan", "responses with NaN or infinite scores", scores.bad, scores.answers, against,
                 settings.nan_percent, z)  # fmt: skip


def _latency(settings: GuardSettings, subject: Evidence, z: float) -> Finding | None:
    histogram, slo = subject.tally.latency, subject.slo_p99_ms
    # A shadow version runs only when nothing else does.
    if slo is None or subject.role == Role.SHADOW or not histogram.count:
        return None
    slow, count = histogram.above(slo * 1000), histogram.count
    p99 = (histogram.quantile(0.99) or 0.0) / 1000
    text = f"p99 {p99:.3g} ms of {count} requests, {slow} above the SLO of {slo:g} ms"
    baseline = subject.baseline.latency if subject.baseline is not None else Histogram()
    limit, more, against = slo, 1.0, None
    if baseline.count >= settings.min_requests:
        against = (baseline.quantile(0.99) or 0.0) / 1000
        limit = max(slo, SLOWER * against)
        beyond = histogram.above(limit * 1000)
        more, _ = excess(beyond, count, baseline.above(limit * 1000), baseline.count, z)
        text += f", the baseline's p99 {against:.3g} ms"
    low = 100 * wilson(histogram.above(limit * 1000), count, z)[0]
    if low > _SLOW_PERCENT and more > 0:
        text += f": at least {low:.2g} % above {limit:.3g} ms, expected at most {_SLOW_PERCENT:g} %"
        return Finding("p99", Ruling.BAD, p99, limit, count, text, against)
    if slow * 100 <= _SLOW_PERCENT * count:
        return Finding("p99", Ruling.OK, p99, limit, count, text, against)
    if against is not None and 100 * wilson(slow, count, z)[0] > _SLOW_PERCENT:
        text += f": above its SLO, but not certainly {SLOWER:g} times as slow as the baseline"
    return Finding("p99", Ruling.WAIT, p99, limit, count, text, against)


def _correlation(settings: GuardSettings, tally: Tally, z: float) -> Finding | None:
    limit, found = settings.min_correlation, tally.correlation
    if limit is None or found.mean is None or found.count < settings.min_requests:
        return None
    _, high = mean(found.sum, found.squares, found.count, z)
    text = f"rank correlation {found.mean:.4f} over {found.count:.0f} requests"
    if high < limit:
        text += f": at most {high:.4f}, expected at least {limit:g}"
        return Finding("correlation", Ruling.BAD, found.mean, limit, int(found.count), text)
    ruling = Ruling.OK if found.mean >= limit else Ruling.WAIT
    return Finding("correlation", ruling, found.mean, limit, int(found.count), text)


def _difference(settings: GuardSettings, tally: Tally, z: float) -> Finding | None:
    limit, found = settings.max_difference, tally.difference
    if limit is None or found.mean is None or found.count < settings.min_requests:
        return None
    low, _ = mean(found.sum, found.squares, found.count, z)
    text = f"mean score difference {found.mean:.3g} over {found.count:.0f} requests"
    if low > limit:
        text += f": at least {low:.3g}, expected at most {limit:g}"
        return Finding("difference", Ruling.BAD, found.mean, limit, int(found.count), text)
    ruling = Ruling.OK if found.mean <= limit else Ruling.WAIT
    return Finding("difference", ruling, found.mean, limit, int(found.count), text)


def _rate(
    what: str, named: str, hits: float, trials: int, against: tuple[float, int] | None, limit: float, z: float
) -> Finding:
    """Judge a rate, or its excess over the baseline's rate."""
    percent = 100 * hits / trials if trials else 0.0
    text = f"{hits:.0f} of {trials} {named} ({percent:.3g} %)"
    other = None
    if against is None:
        low, value = wilson(hits, trials, z)[0], percent
    else:
        low = excess(hits, trials, *against, z)[0]
        other = 100 * against[0] / against[1]
        value = percent - other
        text += f", baseline {other:.3g} %"
    if 100 * low > limit:
        more = " more" if against is not None else ""
        text += f": at least {100 * low:.2g} %{more}, expected at most {limit:g} %"
        return Finding(what, Ruling.BAD, value, limit, trials, text, other)
    return Finding(what, Ruling.OK if value <= limit else Ruling.WAIT, value, limit, trials, text, other)
