# SPDX-License-Identifier: Apache-2.0
"""Make the plan of a tower from pieces: biases, residuals and activations become part of the layer before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from graph_tools.graph import Output
from graph_tools.live import contiguous
from graph_tools.plans import tower_plan as plans
from graph_tools.recognition.towers.pieces import Piece, Site, Weight


@dataclass(eq=False)
class Draft:
    """A layer that may still absorb pieces after it.

    Attributes
    ----------
    kind : str
        `dense`, `affine`, `add`, `multiply`, `concat`, `layer_norm` or `mix`.
    output : Output
        The output that it computes so far.
    inputs, add : list of Output
    kernels : list of Weight
    weights : dict of str to Weight
        `bias`, `scale`, `shift`, `gamma`, `beta`.
    """

    kind: str
    output: Output
    width: int
    inputs: list[Output]
    kernels: list[Weight] = field(default_factory=list)
    weights: dict[str, Weight] = field(default_factory=dict)
    add: list[Output] = field(default_factory=list)
    transpose: bool = False
    epsilon: float = 0.0
    activation: Piece | None = None

    @property
    def is_open(self) -> bool:
        return self.activation is None and self.kind != "layer_norm"


class Drafts:
    """The layers of a region.

    Parameters
    ----------
    site : Site
    pieces : list of Piece
        Each after the pieces whose outputs it uses.
    wanted : iterable of Output
        The outputs that are used outside of the region.
    """

    def __init__(self, site: Site, pieces: list[Piece], wanted: Iterable[Output]) -> None:
        self.site = site
        self.same: dict[Output, Output] = {}
        for piece in pieces:
            if piece.kind == "view":
                self.same[piece.output] = self.rows(piece.inputs[0])
        used = [self.rows(source) for piece in pieces if piece.kind != "view" for source in piece.inputs]
        self._uses = Counter([*used, *(self.rows(output) for output in wanted)])
        self.layers: list[Draft] = []
        self._of: dict[Output, Draft] = {}
        for piece in pieces:
            if piece.kind != "view":
                self._take(piece)

    def rows(self, output: Output) -> Output:
        """Return the output that has the same rows, before views."""
        return self.same.get(output, output)

    def _take(self, piece: Piece) -> None:
        inputs = [self.rows(source) for source in piece.inputs]
        before = self._open(inputs[0])
        if piece.kind == "affine" and before is not None and self._fold_affine(before, piece):
            return self._give(before, piece.output)
        if piece.kind == "activation" and before is not None:
            before.activation = piece
            return self._give(before, piece.output)
        if piece.kind == "add":
            return self._add(piece, inputs)
        if piece.kind == "subtract":
            turned = Output(f"-{inputs[1]}", 0)
            self._new(
                Draft("affine", turned, piece.width, [inputs[1]], weights={"scale": np.full(1, -1.0, np.float32)})
            )
            self._uses[turned] = 1
            return self._add(piece, [inputs[0], turned])
        kind = "affine" if piece.kind == "activation" else piece.kind
        draft = Draft(kind, piece.output, piece.width, inputs, transpose=piece.transpose)
        draft.weights = {key: value for key, value in piece.weights.items() if key != "kernel"}
        if piece.kind == "activation":
            draft.weights = {}
        if piece.kind == "dense":
            draft.kernels = [piece.weights["kernel"]]
        if piece.activation is not None:
            draft.activation = piece
        draft.epsilon = piece.alpha or 0.0 if piece.kind == "layer_norm" else 0.0
        self._new(draft)

    def _new(self, draft: Draft) -> None:
        self.layers.append(draft)
        self._of[draft.output] = draft

    def _give(self, draft: Draft, output: Output) -> None:
        del self._of[draft.output]
        draft.output = output
        self._of[output] = draft

    def _open(self, output: Output) -> Draft | None:
        """Return the layer that computes an output, if it may absorb the only user of this output."""
        draft = self._of.get(output)
        return draft if draft is not None and draft.is_open and self._uses[output] == 1 else None

    def _fold_affine(self, before: Draft, piece: Piece) -> bool:
        """Fold a piece that scales and shifts the result of a layer into the layer."""
        if before.kind not in {"dense", "affine"}:
            return False
        name = "bias" if before.kind == "dense" else "shift"
        if "scale" in piece.weights:
            if before.kind == "dense" or {"scale", "shift"} & set(before.weights):
                return False
            before.weights["scale"] = piece.weights["scale"]
        if "shift" in piece.weights:
            shift = piece.weights["shift"]
            if before.kind == "dense":
                shift = self._whole(shift, piece.width)
            found = self._sum(before.weights.get(name), shift, piece.width)
            if found is None:
                return False
            before.weights[name] = found
        return True

    def _whole(self, weight: Weight, width: int) -> Weight:
        """Return a bias with an element for each unit."""
        value = self.site.values.weight(weight) if isinstance(weight, Output) else weight
        if value is None or value.size == width:
            return weight
        return contiguous(np.broadcast_to(value.reshape(1).astype(np.float32), (width,)))

    def _sum(self, first: Weight | None, second: Weight, width: int) -> Weight | None:
        if first is None:
            return second
        values = [self.site.values.weight(bias) if isinstance(bias, Output) else bias for bias in (first, second)]
        if any(bias is None for bias in values):
            return None
        return contiguous(sum(np.broadcast_to(bias, (width,)) for bias in values if bias is not None))

    def _add(self, piece: Piece, inputs: list[Output]) -> None:
        parts: list[Output] = []
        for source in inputs:
            inner = self._open(source)
            if inner is not None and inner.kind == "add":
                self.layers.remove(inner)
                del self._of[source]
                parts += inner.inputs
            else:
                parts.append(source)
        hosts = [draft for draft in map(self._open, parts) if draft is not None and draft.kind == "dense"]
        if not hosts:
            return self._new(Draft("add", piece.output, piece.width, parts))
        host = hosts[-1]
        joined = [draft for draft in hosts[:-1] if self._join(host, draft, piece.width)]
        gone = {draft.output for draft in joined} | {host.output}
        host.add += [part for part in parts if part not in gone]
        for other in joined:
            self.layers.remove(other)
            del self._of[other.output]
        # The tensors that it adds may have been computed after its own inputs.
        self.layers.remove(host)
        self.layers.append(host)
        self._give(host, piece.output)

    def _join(self, host: Draft, other: Draft, width: int) -> bool:
        """Make a layer part of the sum of another one."""
        if host.transpose != other.transpose:
            return False
        if "bias" in other.weights:
            bias = self._sum(host.weights.get("bias"), other.weights["bias"], width)
            if bias is None:
                return False
            host.weights["bias"] = bias
        host.inputs += other.inputs
        host.kernels += other.kernels
        host.add += other.add
        return True


_COMBINING: dict[str, Callable[[tuple[str, ...], plans.Activation | None], plans.Layer]] = {
    "add": plans.Add,
    "multiply": plans.Multiply,
    "concat": plans.Concat,
    "mix": plans.Mix,
}


@dataclass
class Tower:
    """A plan, with the inputs and weights to which it refers.

    Attributes
    ----------
    plan : TowerPlan
    inputs : list of Output
    weights : list of Weight
    """

    plan: plans.TowerPlan
    inputs: list[Output]
    weights: list[Weight]


def make_tower(site: Site, pieces: list[Piece], wanted: list[Output]) -> Tower:
    """Make the plan of a region, with the outputs `wanted` that are used outside of it."""
    drafts = Drafts(site, pieces, wanted)
    numbers = {draft.output: f"h{i}" for i, draft in enumerate(drafts.layers)}
    maker = _Maker(numbers)
    layers = tuple(maker.layer(draft) for draft in drafts.layers)
    plan = plans.TowerPlan(layers, tuple(maker.reference(drafts.rows(output)) for output in wanted))
    plan.check(len(maker.inputs), len(maker.weights))
    return Tower(plan, list(maker.inputs), maker.weights)


class _Maker:
    def __init__(self, numbers: dict[Output, str]) -> None:
        self.numbers = numbers
        self.inputs: dict[Output, str] = {}
        self.weights: list[Weight] = []
        self._known: dict[object, int] = {}

    def reference(self, output: Output) -> str:
        if output in self.numbers:
            return self.numbers[output]
        return self.inputs.setdefault(output, f"x{len(self.inputs)}")

    def weight(self, weight: Weight | None) -> int | None:
        if weight is None:
            return None
        key = weight if isinstance(weight, Output) else (weight.shape, weight.tobytes())
        if key not in self._known:
            self._known[key] = len(self.weights)
            self.weights.append(weight)
        return self._known[key]

    def layer(self, draft: Draft) -> plans.Layer:
        inputs = tuple(self.reference(source) for source in draft.inputs)
        weights, activation = draft.weights, self._activation(draft.activation)
        if draft.kind == "dense":
            kernels = tuple(self.weight(kernel) or 0 for kernel in draft.kernels)
            add = tuple(self.reference(source) for source in draft.add)
            return plans.Dense(inputs, kernels, self.weight(weights.get("bias")), add, draft.transpose, activation)
        if draft.kind == "affine":
            return plans.Affine(
                inputs, self.weight(weights.get("scale")), self.weight(weights.get("shift")), activation
            )
        if draft.kind == "layer_norm":
            gamma, beta = self.weight(weights.get("gamma")), self.weight(weights.get("beta"))
            return plans.LayerNorm(inputs, draft.epsilon, gamma, beta)
        return _COMBINING[draft.kind](inputs, activation)

    def _activation(self, piece: Piece | None) -> plans.Activation | None:
        if piece is None or piece.activation is None:
            return None
        numbers = {
            key: self.weight(piece.weights.get(key)) for key in plans.ACTIVATIONS[piece.activation] if key != "alpha"
        }
        alpha = piece.alpha if "alpha" in plans.ACTIVATIONS[piece.activation] else None
        return plans.Activation(piece.activation, alpha, onednn=piece.onednn, **numbers)
