# SPDX-License-Identifier: Apache-2.0
"""The plan of a `RecDenseTower`: what it computes.

A reference is `x0` for input 0 and `h0` for the result of layer 0; a plan refers to weights by their numbers. Call
`TowerPlan.check` before a plan is written into a node: the kernel checks the same, but only when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from graph_tools.plans import records
from graph_tools.plans.records import wrong

#: Activations, with the fields of `Activation` that each needs.
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "relu": (),
    "relu6": (),
    "leaky_relu": ("alpha",),
    "elu": (),
    "selu": (),
    "sigmoid": (),
    "tanh": (),
    "gelu": (),
    "gelu_tanh": (),
    "swish": (),
    "softplus": (),
    "softmax": (),
    "prelu": ("weight",),
    "dice": ("weight", "scale", "shift"),
}

#: Precisions that a dense layer may keep in a tower that computes in int8.
KEPT_PRECISIONS = ("bf16", "fp32")


@dataclass(frozen=True)
class Activation:
    """An activation; `weight`, `scale` and `shift` are numbers of weights [k] or [1].

    With `onednn`, `relu` and `relu6` turn NaN into 0 if TensorFlow runs with oneDNN, as its product with relu does.
    """

    kind: str
    alpha: float | None = None
    weight: int | None = None
    scale: int | None = None
    shift: int | None = None
    onednn: bool = False


@dataclass(frozen=True)
class Dense:
    """`activation(Σ x·W + bias + Σ add)`, one weight for each input: [k, units], or [units, k] with `transpose`.

    If the op computes in int8, a layer with a `precision` (bf16 or fp32) computes in that instead.
    """

    op: ClassVar[str] = "dense"
    inputs: tuple[str, ...]
    weights: tuple[int, ...]
    bias: int | None = None
    add: tuple[str, ...] = ()
    transpose: bool = False
    activation: Activation | None = None
    precision: str | None = None


@dataclass(frozen=True)
class Affine:
    """`activation(x · scale + shift)`."""

    op: ClassVar[str] = "affine"
    inputs: tuple[str, ...]
    scale: int | None = None
    shift: int | None = None
    activation: Activation | None = None


@dataclass(frozen=True)
class Add:
    op: ClassVar[str] = "add"
    inputs: tuple[str, ...]
    activation: Activation | None = None


@dataclass(frozen=True)
class Multiply:
    op: ClassVar[str] = "multiply"
    inputs: tuple[str, ...]
    activation: Activation | None = None


@dataclass(frozen=True)
class Concat:
    op: ClassVar[str] = "concat"
    inputs: tuple[str, ...]
    activation: Activation | None = None


@dataclass(frozen=True)
class LayerNorm:
    """Normalization over the last dimension."""

    op: ClassVar[str] = "layer_norm"
    inputs: tuple[str, ...]
    epsilon: float
    gamma: int | None = None
    beta: int | None = None


@dataclass(frozen=True)
class Mix:
    """`Σ gate[:, i] · x_i`: the first input is the gate [rows, n], the others are the n x_i [rows, units]."""

    op: ClassVar[str] = "mix"
    inputs: tuple[str, ...]
    activation: Activation | None = None


Layer = Dense | Affine | Add | Multiply | Concat | LayerNorm | Mix


@dataclass(frozen=True)
class TowerPlan:
    """The plan of a `RecDenseTower`; a layer uses only layers before it."""

    layers: tuple[Layer, ...]
    outputs: tuple[str, ...]

    def to_json(self) -> str:
        """Return the text of the op's attribute; equal plans give equal texts."""
        return records.to_json(self)

    @staticmethod
    def from_json(text: str | bytes) -> TowerPlan:
        """Read the text of the op's attribute; raise `UnreadableError`, with the fault, if it is not valid."""
        return records.from_json(TowerPlan, text, "tower plan")

    def check(self, inputs: int, weights: int) -> None:
        """Raise `UnreadableError` for a reference without a target, or a layer that lacks something.

        Parameters
        ----------
        inputs, weights : int
            Number of inputs and weights of the op.
        """
        for number, layer in enumerate(self.layers):
            where = f"tower plan: layer {number}"
            _check_shape(layer, where)
            for reference in references(layer):
                _check_reference(reference, where, inputs, number)
            for weight in weight_numbers(layer):
                if not 0 <= weight < weights:
                    raise wrong(where, f"weight {weight}", f"a number below {weights}")
        if not self.outputs:
            raise wrong("tower plan", "no outputs", "at least one")
        for reference in self.outputs:
            _check_reference(reference, "tower plan: outputs", inputs, len(self.layers))


def references(layer: Layer) -> tuple[str, ...]:
    """Return the references to the inputs of a layer."""
    return layer.inputs + (layer.add if isinstance(layer, Dense) else ())


def averaged(plan: TowerPlan) -> list[int]:
    """Return the numbers of the dense layers whose results leave the op only through other dense layers.

    Only these layers compute in bf16 or int8: nothing averages the errors of the others.
    """
    leaving = {reference for reference in plan.outputs if reference[0] == "h"}
    found = []
    for number, layer in reversed(list(enumerate(plan.layers))):
        if f"h{number}" in leaving:
            leaving |= set(layer.add if isinstance(layer, Dense) else layer.inputs)
        elif isinstance(layer, Dense):
            found.append(number)
    return found[::-1]


def weight_numbers(layer: Layer) -> Iterator[int]:
    """Yield the numbers of the weights of a layer and of its activation."""
    found: list[int | None] = []
    if isinstance(layer, Dense):
        found = [*layer.weights, layer.bias]
    elif isinstance(layer, Affine):
        found = [layer.scale, layer.shift]
    elif isinstance(layer, LayerNorm):
        found = [layer.gamma, layer.beta]
    if not isinstance(layer, LayerNorm) and layer.activation is not None:
        found += [layer.activation.weight, layer.activation.scale, layer.activation.shift]
    yield from (number for number in found if number is not None)


def _check_reference(reference: str, where: str, inputs: int, layers: int) -> None:
    end = {"x": inputs, "h": layers}.get(reference[:1], 0)
    number = reference[1:]
    if not (number.isascii() and number.isdigit() and str(int(number)) == number and int(number) < end):
        raise wrong(where, f"reference '{reference}'", f"x and a number below {inputs} or h and one below {layers}")


def _check_shape(layer: Layer, where: str) -> None:
    """Check the number of inputs and weights of a layer."""
    count = len(layer.inputs)
    if isinstance(layer, (Affine, LayerNorm)) and count != 1:
        raise wrong(where, f"{layer.op} of {count} inputs", "one")
    if isinstance(layer, Mix) and count < 2:
        raise wrong(where, f"mix of {count} inputs", "a gate and at least one more")
    if not count:
        raise wrong(where, f"{layer.op} of no inputs", "at least one")
    if isinstance(layer, Dense) and len(layer.weights) != count:
        raise wrong(where, f"{len(layer.weights)} weights for {count} inputs", "one each")
    if isinstance(layer, Dense) and layer.precision not in (None, *KEPT_PRECISIONS):
        raise wrong(where, f"precision '{layer.precision}'", f"one of {', '.join(KEPT_PRECISIONS)}")
    if isinstance(layer, LayerNorm):
        if not layer.epsilon > 0:
            raise wrong(where, f"epsilon {layer.epsilon}", "more than 0")
    elif layer.activation is not None:
        _check_activation(layer.activation, where)


def _check_activation(activation: Activation, where: str) -> None:
    if activation.kind not in ACTIVATIONS:
        raise wrong(where, f"activation '{activation.kind}'", f"one of {', '.join(ACTIVATIONS)}")
    if activation.onednn and activation.kind not in {"relu", "relu6"}:
        raise wrong(where, f"activation {activation.kind} with 'onednn'", "none")
    for name in ("alpha", "weight", "scale", "shift"):
        there, needed = getattr(activation, name) is not None, name in ACTIVATIONS[activation.kind]
        if there != needed:
            raise wrong(
                where,
                f"activation {activation.kind} with{'' if there else 'out'} '{name}'",
                "it" if needed else "none",
            )
