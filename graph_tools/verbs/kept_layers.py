# SPDX-License-Identifier: Apache-2.0
"""Find the dense layers that int8 spoils, so that a more precise form of them can be kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from graph_tools.report.precision import Int8, KeptLayer
from graph_tools.verbs.precision_trial import Measured, Trial
from graph_tools.verbs.tower_precision import LayerPlace

#: Largest number of layers that are tried alone, and of comparisons in total.
MOST_ALONE, MOST_COMPARISONS = 8, 16


@dataclass
class LayerSearch:
    """Decides whether layers may compute in int8, and which of them must be more precise for that.

    If int8 loses too much, each layer is made more precise alone, the first and last of a tower before the others. If
    none suffices, those that improve the scores most are made more precise together.

    Attributes
    ----------
    trial : Trial
    towers : list of list of LayerPlace
        The dense layers that can compute in int8, by tower.
    wider : str
        Precision of layers that are not in int8: `bf16` or `fp32`.
    limit : float
        Largest permitted loss of AUC, or of rank correlation.
    """

    trial: Trial
    towers: Sequence[Sequence[LayerPlace]]
    wider: str
    limit: float
    _comparisons: int = field(default=0, init=False)
    _alone: dict[LayerPlace, Measured] = field(default_factory=dict, init=False)

    def decide(self) -> Int8:
        """Return the decision, with the layers to keep or the layer that spoils the scores."""
        every = self._measure([])
        if not every.problems:
            return self._permitted(every, every, [])
        if every.other_problems:
            return self._refused(every, every.other_problems[0])
        layers = _ends_first(self.towers)
        if len(layers) == 1:
            return self._refused(every, f"{every.problems[0]}; only {layers[0]} would be in int8")
        for place in layers[:MOST_ALONE]:
            found = self._alone[place] = self._measure([place])
            if not found.problems:
                return self._permitted(every, found, [place])
        ranked = sorted(self._alone, key=lambda place: self._alone[place].badness)
        for number in range(2, len(ranked)):
            if self._comparisons == MOST_COMPARISONS:
                break
            found = self._measure(ranked[:number])
            if not found.problems:
                return self._permitted(every, found, ranked[:number])
        worst = ranked[0]
        return self._refused(
            every,
            f"{every.problems[0]}; {worst} spoils most: with it in {self.wider}, {self._alone[worst]} is lost",
        )

    def _measure(self, kept: Iterable[LayerPlace]) -> Measured:
        self._comparisons += 1
        return self.trial.measure("int8", self.limit, dict.fromkeys(kept, self.wider), recorded_only=True)

    def _permitted(self, every: Measured, found: Measured, kept: list[LayerPlace]) -> Int8:
        layers = [
            KeptLayer(
                place.node,
                place.layer,
                place.weights,
                self.wider,
                f"{every} is lost with all layers in int8, {self._alone[place]} with this one in {self.wider}",
            )
            for place in kept
        ]
        exception = f" with {len(kept)} layer{'s' * (len(kept) > 1)} in {self.wider}" if kept else ""
        reason = f"every output loses at most {self.limit:g} in int8{exception}"
        return Int8(True, reason, found.certificate(), layers, found.losses, self._comparisons)

    def _refused(self, every: Measured, reason: str) -> Int8:
        return Int8(False, reason, every.certificate(), [], every.losses, self._comparisons)


def _ends_first(towers: Sequence[Sequence[LayerPlace]]) -> list[LayerPlace]:
    """Return the first layer of each tower, then the last ones, then the second ones, and so on."""
    placed = [
        (2 * min(number, len(tower) - 1 - number) + (number > len(tower) - 1 - number), place)
        for tower in towers
        for number, place in enumerate(tower)
    ]
    return [place for _, place in sorted(placed, key=lambda found: found[0])]
