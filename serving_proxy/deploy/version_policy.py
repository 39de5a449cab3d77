# SPDX-License-Identifier: Apache-2.0
"""Choose the versions of a base directory that are to be served: stateless, with the same result for the same input.

Serving does not stop because a directory disappears: the newest version that works stays until another one is ready to
replace it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from serving_proxy.errors import UnavailableError
from serving_proxy.records.models import Model, Policy, PolicyKind
from serving_proxy.records.states import SERVED, State


@dataclass(frozen=True)
class PolicyChoice:
    """The result of a policy.

    Attributes
    ----------
    load, unload : tuple of int
        Versions to deploy, and to take out.
    follow : int or None
        The version that is to become the baseline once it is ready.
    missing : tuple of int
        Versions that the policy or a label names but the directory does not contain.
    chosen : tuple of int
        Versions that are to serve requests that name them, with or without a share of the traffic.
    """

    load: tuple[int, ...] = ()
    unload: tuple[int, ...] = ()
    follow: int | None = None
    missing: tuple[int, ...] = ()
    chosen: tuple[int, ...] = ()


def wanted_versions(policy: Policy, there: Iterable[int]) -> frozenset[int]:
    """Return the versions that a policy chooses from those in the directory."""
    found = sorted(set(there))
    if policy.kind == PolicyKind.LATEST:
        return frozenset(found[-policy.count :])
    if policy.kind == PolicyKind.SPECIFIC:
        return frozenset(policy.versions) & set(found)
    return frozenset(found)


def choose_versions(policy: Policy, there: Mapping[int, str], model: Model) -> PolicyChoice:
    """Compare a base directory with the deployed versions.

    Parameters
    ----------
    policy : Policy
    there : mapping of version to str
        Versions in the directory, with the stamps of their files: a failed version is tried again once its files
        change.
    model : Model
        The present state.
    """
    found = set(there)
    wanted = wanted_versions(policy, found | _baseline_without_directory(model, found))
    deployed = {number for number, version in model.versions.items() if version.active}
    # A store that did not answer says nothing about the version.
    failed = [v for v in model.versions.values() if v.state == State.FAILED and v.failure != UnavailableError.status]
    tried = {version.number for version in failed if there.get(version.number, version.stamp) == version.stamp}
    named = set(policy.versions) if policy.kind == PolicyKind.SPECIFIC else set()
    missing = (named | set(model.labels.values())) - found - deployed
    kept = wanted | {model.baseline, model.last_good, model.candidate} | set(model.labels.values()) | set(model.weights)
    unload = (deployed | tried) - kept if _is_any_ready(wanted & found, model) else set()
    return PolicyChoice(
        load=tuple(sorted((wanted & found) - deployed - tried)),
        unload=tuple(sorted(unload)),
        follow=_version_to_follow(wanted & (deployed | tried), model),
        missing=tuple(sorted(missing)),
        chosen=tuple(sorted(wanted)),
    )


def _baseline_without_directory(model: Model, found: Set[int]) -> frozenset[int]:
    """Return the baseline if its directory is gone but hosts have it, so that the policy does not follow an older
    version.
    """
    baseline = None if model.baseline is None else model.versions[model.baseline]
    served = baseline is not None and baseline.state in SERVED
    return frozenset({baseline.number} - found) if baseline is not None and served else frozenset()


def _is_any_ready(wanted: frozenset[int], model: Model) -> bool:
    """Return whether a wanted version is ready, so that others may be unloaded."""
    return any(model.versions[number].state == State.READY for number in wanted if number in model.versions)


def _version_to_follow(wanted: Iterable[int], model: Model) -> int | None:
    """Return the largest version that is not known to be bad, or None if that is the baseline or candidate already."""
    good = [number for number in wanted if not _is_bad(model, number)]
    largest = max(good, default=None)
    return None if largest in {None, model.baseline, model.candidate} else largest


def _is_bad(model: Model, number: int) -> bool:
    version = model.versions[number]
    return version.rejected or version.state == State.FAILED


def labels_to_publish(labels: Mapping[str, int], published: Mapping[str, int], ready: Iterable[int]) -> dict[str, int]:
    """Return the labels for hosts: a label moves to a version only once that version is ready.

    Parameters
    ----------
    labels : mapping of str to int
        The wanted labels.
    published : mapping of str to int
        The labels that hosts have.
    ready : iterable of int
        Versions that are ready.
    """
    there = set(ready)
    kept = {label: number for label, number in published.items() if label in labels}
    return kept | {label: number for label, number in labels.items() if number in there}
