# SPDX-License-Identifier: Apache-2.0
"""Which engine says which proxy leads."""

from __future__ import annotations

import re

from serving_proxy.errors import InvalidError
from serving_proxy.leadership.leading import request_limit
from serving_proxy.leadership.lease import Lease, StoreLease
from serving_proxy.leadership.shared_store import open_shared_store

_KUBERNETES = re.compile(r"kubernetes:([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)")


RAY = "ray"


def check_lease(wanted: str) -> str:
    """Return the name of the Lease of Kubernetes that `--lease` names, or `ray`.

    Raises
    ------
    InvalidError
        It names something else.
    """
    if wanted == RAY:
        return RAY
    found = _KUBERNETES.fullmatch(wanted)
    if found is None:
        raise InvalidError(
            f"--lease '{wanted}': expected kubernetes:NAME, the name of a Lease in the pod's namespace, or ray"
        )
    return found[1]


def open_lease(wanted: str | None, shared: str, cluster: tuple[str, str], lasts_s: float) -> Lease:
    """Return the lease that proxies share: one in their store, or of an engine.

    Parameters
    ----------
    wanted : str or None
        The value of `--lease`.
    shared : str
        The value of `--shared-store`.
    cluster : (str, str)
        Address and namespace for `ray`.
    lasts_s : float [s]
        Longest time without a renewal.

    Raises
    ------
    InvalidError
        This process is not in a cluster.
    """
    if wanted is None:
        return StoreLease(open_shared_store(shared, request_limit(lasts_s)))
    if wanted == RAY:
        from serving_proxy.leadership.ray_lease import RayLease

        return RayLease(*cluster, request_limit(lasts_s))
    from serving_proxy.leadership.kubernetes import lease_of_cluster

    return lease_of_cluster(check_lease(wanted), request_limit(lasts_s))
