# SPDX-License-Identifier: Apache-2.0
"""Compute the probability of waiting by Erlang's formula."""

from __future__ import annotations


def erlang_c(servers: int, load: float) -> float:
    r"""Return the probability that an arrival waits in an M/M/k queue.

    Parameters
    ----------
    servers : int
        k.
    load : float [erlang]
        Rate times mean service time, a.

    Returns
    -------
    probability : float
        1 if the load is at least the number of servers.

    Notes
    -----
    :math:`B_0 = 1,\ B_j = a B_{j-1}/(j + a B_{j-1}),\ C = B_k/(1 - \rho(1 - B_k))` with :math:`\rho = a/k`.

    Source: A. K. Erlang, 1917; the recursion as in L. Kleinrock, Queueing Systems 1, 1975, section 3.6.
    """
    if load <= 0:
        return 0.0
    if load >= servers:
        return 1.0
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))
