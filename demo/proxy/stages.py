# SPDX-License-Identifier: Apache-2.0
"""Record the stages of routing, and the responses that clients received in each stage."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from demo.proxy.traffic import Sent

#: With so few users, shares vary at random: accept four standard deviations.
DEVIATIONS = 4.0


@dataclasses.dataclass(frozen=True)
class Stage:
    """Describe a period with constant routing.

    Attributes
    ----------
    name, title : str
        Its names in the JSON and in the table.
    shares : mapping of int to float
        Requested share [%] by version.
    sent : sequence of Sent
        Requests of clients in this period.
    """

    name: str
    title: str
    shares: Mapping[int, float]
    sent: Sequence[Sent]

    @property
    def versions(self) -> Counter[int]:
        """Return how many requests each version served."""
        return Counter(request.version for request in self.sent if not request.lost)

    @property
    def users(self) -> dict[str, set[int]]:
        """Return the versions that served each user."""
        found: dict[str, set[int]] = {}
        for request in self.sent:
            if not request.lost:
                found.setdefault(request.user, set()).add(request.version)
        return found

    @property
    def on_both(self) -> int:
        """Return the number of users who were served by more than one version."""
        return sum(len(versions) > 1 for versions in self.users.values())

    def users_share(self, version: int) -> float:
        """Return the share of users who were served by a version [%]."""
        users = self.users
        return 100.0 * sum(version in versions for versions in users.values()) / max(1, len(users))

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each deviation from the request."""
        if not self.sent:
            yield f"{self.title}: no request was sent, expected some"
            return
        if self.on_both:
            yield f"{self.title}: {self.on_both} users got more than one version, expected none"
        users = max(1, len(self.users))
        for version, share in self.shares.items():
            found, part = self.users_share(version), share / 100.0
            room = 100.0 * DEVIATIONS * (part * (1.0 - part) / users) ** 0.5
            if abs(found - share) > room + 1e-9:
                yield f"{self.title}: version {version} had {found:.1f} % of the users, expected {share:g} %"


def faults(sent: Sequence[Sent], stages: Sequence[Stage], clients: Sequence[str]) -> list[str]:
    """List all faults over the whole time, one sentence each."""
    found = []
    lost = [request for request in sent if request.lost]
    wrong = [request for request in sent if request.wrong]
    if lost:
        found.append(f"{len(lost)} requests were lost, expected none; the first: {lost[0].client}: {lost[0].fault}")
    if wrong:
        found.append(f"{len(wrong)} responses differ from the scores of their version, expected none")
    asked = {request.client for request in sent}
    found += [f"{client}: no request was sent, expected some" for client in clients if client not in asked]
    for stage in stages:
        found += stage.faults()
    return found
