# SPDX-License-Identifier: Apache-2.0
"""What was asked of the proxy, one thing after the other, and what clients saw while it held."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from demo.proxy.traffic import Sent

#: A share is that of so few users that chance moves it: by four standard deviations at most.
DEVIATIONS = 4.0


@dataclasses.dataclass(frozen=True)
class Stage:
    """A time in which routing was one and the same.

    Attributes
    ----------
    name, title : str
        For the JSON and for the table.
    shares : mapping of int to float
        What was asked for [%] by version.
    sent : sequence of Sent
        What clients sent in it.
    """

    name: str
    title: str
    shares: Mapping[int, float]
    sent: Sequence[Sent]

    @property
    def versions(self) -> Counter[int]:
        """How many requests each version answered."""
        return Counter(one.version for one in self.sent if not one.lost)

    @property
    def users(self) -> dict[str, set[int]]:
        """The versions that each user met."""
        found: dict[str, set[int]] = {}
        for one in self.sent:
            if not one.lost:
                found.setdefault(one.user, set()).add(one.version)
        return found

    @property
    def on_both(self) -> int:
        """How many users met more than one version."""
        return sum(len(versions) > 1 for versions in self.users.values())

    def users_share(self, version: int) -> float:
        """Answer the share of the users that met a version [%]."""
        users = self.users
        return 100.0 * sum(version in versions for versions in users.values()) / max(1, len(users))

    def faults(self) -> Iterator[str]:
        """Yield what was not as it was asked for, a sentence each."""
        if not self.sent:
            yield f"{self.title}: no request was sent, expected some"
            return
        if self.on_both:
            yield f"{self.title}: {self.on_both} users met more than one version, expected none"
        users = max(1, len(self.users))
        for version, share in self.shares.items():
            found, part = self.users_share(version), share / 100.0
            room = 100.0 * DEVIATIONS * (part * (1.0 - part) / users) ** 0.5
            if abs(found - share) > room + 1e-9:
                yield f"{self.title}: version {version} had {found:.1f} % of the users, expected {share:g} %"


def faults(sent: Sequence[Sent], stages: Sequence[Stage], clients: Sequence[str]) -> list[str]:
    """List everything that was not as it should be, over the whole time, a sentence each."""
    found = []
    lost = [one for one in sent if one.lost]
    wrong = [one for one in sent if one.wrong]
    if lost:
        found.append(f"{len(lost)} requests were lost, expected none; the first: {lost[0].client}: {lost[0].fault}")
    if wrong:
        found.append(f"{len(wrong)} answers were not the scores of their version, expected none")
    asked = {one.client for one in sent}
    found += [f"{client}: sent nothing, expected requests" for client in clients if client not in asked]
    for stage in stages:
        found += stage.faults()
    return found
