# SPDX-License-Identifier: Apache-2.0
"""Compare the outputs of two models, number by number and as rankings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.json_data import Count, Difference, Fraction, JsonSchema, NotNegative, reported
from graph_tools.tensors import Array
from graph_tools.verification.ranking import auc, spearman

Correlation = Annotated[float, JsonSchema(type="number", minimum=-1, maximum=1)]
Element = Annotated[str | float | bool, JsonSchema(type=["string", "number", "boolean"])]

# Number of elements of an output, counted from the first, that enter the rank correlation.
_RANKED = 1 << 20


@dataclass(frozen=True)
class Tolerance:
    """Largest permitted difference: `|a - b| <= absolute + relative * |b|`, with b of the second model."""

    absolute: NotNegative = 1e-5
    relative: NotNegative = 1e-5

    @staticmethod
    def parse(text: str) -> Tolerance:
        """Parse `ABS` or `ABS,REL`; with `ABS` alone, the relative part is 0.

        Raises
        ------
        UsageError
        """
        parts = text.split(",")
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2) or not all(np.isfinite(number) and number >= 0 for number in numbers):
            raise UsageError(f"tolerance: '{text}', expected ABS or ABS,REL, such as 1e-5 or 1e-5,1e-5")
        return Tolerance(numbers[0], numbers[1] if len(numbers) == 2 else 0.0)

    def allowed(self, b: Array) -> Array:
        """Return the permitted difference [...] float64 for each element of the second model's output."""
        found: Array = self.absolute + self.relative * np.abs(b)
        return found


@dataclass(frozen=True)
class AnswerTolerance(Tolerance):
    """Like `Tolerance`, but relative to the largest score of an output, since sums of large numbers may cancel."""

    def allowed(self, b: Array) -> Array:
        finite = np.abs(b[np.isfinite(b)])
        return np.full(b.shape, self.absolute + self.relative * float(finite.max(initial=0.0)))


#: Largest permitted change of a score if rows or weights are rounded and no tolerance was given.
FAR = AnswerTolerance(0.05, 0.1)


@dataclass
class Worst:
    """The place where two outputs differ most, relative to the tolerance.

    Attributes
    ----------
    index : list of int or None
        None: the shapes differ.
    a, b : str, number or bool
        The elements at that place.
    """

    request: str
    index: list[Count] | None
    a: Element
    b: Element


@dataclass
class OutputComparison:
    """Difference between an output of both models, over all requests.

    Attributes
    ----------
    dtype : str
        Dtype of the first model, or `a != b` if the dtypes differ.
    elements : int
        Number of compared elements.
    beyond : int
        Elements that differ by more than the tolerance; for integers, booleans and strings, elements that differ at
        all.
    unsettled : int
        Elements beyond the tolerance that are not counted in `beyond`, since they depend on the rounding of sums: the
        first model's own elements move as far when numbers of the request change in their last place.
    different : int
        Elements whose bits differ.
    max_abs_difference : float
        Largest |a - b| of finite elements.
    max_rel_difference : float
        Largest |a - b| / |b| of finite elements with b != 0.
    nan_a, nan_b : int
        NaN elements of each model. NaN equals NaN only.
    nan_apart : int
        Elements that are NaN in only one of the models, without those in `rewritten`.
    far : int
        Elements that differ by more than 0.05 + 0.1 x the largest score of their output.
    rewritten : int
        Elements beyond the tolerance that are not counted in `beyond`: the request contains numbers that are not
        finite, and with the other setting of oneDNN both models are equal. TensorFlow rewrites the second graph
        differently.
    shapes : int
        Requests whose outputs have different shapes; none of their elements is compared.
    rank_correlation : float or None
        Spearman's rank correlation over all requests, 0 if the output is constant in the second model only; None: the
        output is not a real number, or is constant in the first model.
    auc_a, auc_b : float or None
        Area under the ROC curve, if requests have labels.
    worst : Worst or None
        Place of the largest difference, relative to the tolerance.
    """

    signature: str
    name: str
    dtype: str
    elements: Count = 0
    beyond: Count = 0
    unsettled: Count = 0
    different: Count = 0
    max_abs_difference: Difference = 0.0
    max_rel_difference: Difference = 0.0
    nan_a: Count = 0
    nan_b: Count = 0
    nan_apart: Count = 0
    far: Count = 0
    rewritten: Count = 0
    shapes: Count = 0
    rank_correlation: Correlation | None = None
    auc_a: Fraction | None = None
    auc_b: Fraction | None = None
    worst: Worst | None = None
    _values: list[tuple[Array, Array]] = field(default_factory=list, repr=False)
    _labels: list[tuple[Array, Array, Array]] = field(default_factory=list, repr=False)
    _worst_ratio: float = field(default=0.0, repr=False)

    @property
    @reported
    def bit_exact(self) -> bool:
        """True if no bit differs."""
        return self.different == 0 and self.shapes == 0 and "!=" not in self.dtype

    @property
    @reported
    def equal(self) -> bool:
        """True if all elements are within the tolerance."""
        return self.beyond == 0 and self.shapes == 0 and "!=" not in self.dtype

    @property
    def only_scores_differ(self) -> bool:
        """True if all differences are between real numbers, in outputs of one shape and dtype."""
        return "float" in self.dtype and "!=" not in self.dtype and self.shapes == 0 and self.nan_apart == 0

    def add(
        self,
        a: Array,
        b: Array,
        tolerance: Tolerance,
        request: str,
        labels: Array | None = None,
        slack: Array | None = None,
        alike: Array | None = None,
    ) -> None:
        """Compare the outputs for one request.

        `slack` is added to the permitted difference of each element. Where `alike` is true, TensorFlow itself causes
        the difference.
        """
        if a.dtype != b.dtype:
            self.dtype = f"{_dtype_name(a)} != {_dtype_name(b)}"
        if a.shape != b.shape:
            self.shapes += 1
            self._note_if_worst(np.inf, request, f"shape {list(a.shape)}", f"shape {list(b.shape)}", None)
            return
        self.elements += a.size
        if not is_real(a) or not is_real(b):
            self._add_exact(a, b, request)
        else:
            self._add_real(a, b, tolerance, request, slack, alike)
            if sum(len(value) for value, _ in self._values) < _RANKED:
                self._values.append((a.ravel(), b.ravel()))
            if labels is not None and a.size == len(labels):
                self._labels.append((labels, a.ravel(), b.ravel()))

    def finish(self) -> None:
        """Compute the measures that need all requests, and release the stored outputs."""
        if self._values:
            a, b = (np.concatenate([value[side] for value in self._values]).astype(np.float64) for side in (0, 1))
            self.rank_correlation = spearman(a, b)
        if self._labels:
            labels, a, b = (np.concatenate([label[side] for label in self._labels]) for side in (0, 1, 2))
            self.auc_a, self.auc_b = auc(labels, a), auc(labels, b)
        self._values, self._labels = [], []

    def _add_exact(self, a: Array, b: Array, request: str) -> None:
        """Compare integers, booleans and strings, for which any difference counts."""
        wrong = np.asarray(a != b)
        if a.dtype.kind == "c":
            wrong &= ~(np.isnan(a) & np.isnan(b))
        count = int(wrong.sum())
        self.different += count
        self.beyond += count
        if count:
            if a.dtype.kind in "iub" and b.dtype.kind in "iub":
                apart = np.abs(a[wrong].astype(np.float64) - b[wrong].astype(np.float64))
                self.max_abs_difference = max(self.max_abs_difference, float(apart.max()))
            index = tuple(int(place) for place in np.argwhere(wrong)[0])
            self._note_if_worst(np.inf, request, a[index], b[index], index)

    def _add_real(
        self, a: Array, b: Array, tolerance: Tolerance, request: str, slack: Array | None, alike: Array | None
    ) -> None:
        self.different += different_bits(a, b)
        # float64 represents every number of the smaller dtypes exactly, so the difference itself is not rounded.
        x, y = a.astype(np.float64), b.astype(np.float64)
        nan_x, nan_y = np.isnan(x), np.isnan(y)
        self.nan_a += int(nan_x.sum())
        self.nan_b += int(nan_y.sum())
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(x - y)
            allowed = tolerance.allowed(y)
            same = (x == y) | (nan_x & nan_y)
            finite = np.isfinite(x) & np.isfinite(y)
            wrong = outside(a, b, tolerance)
            if slack is not None:
                allowed += slack
                settled = wrong & ~(finite & (apart <= allowed))
                self.unsettled += int(wrong.sum() - settled.sum())
                wrong = settled
            excused = np.zeros_like(wrong) if alike is None else wrong & alike
            wrong = wrong & ~excused
            finite, same = finite & ~excused, same | excused
        self.rewritten += int(excused.sum())
        self.nan_apart += int(((nan_x != nan_y) & ~excused).sum())
        self.far += int((wrong & outside(a, b, FAR)).sum())
        self.beyond += int(wrong.sum())
        if finite.any():
            self.max_abs_difference = max(self.max_abs_difference, float(apart[finite].max()))
            divisible = finite & (y != 0)
            if divisible.any():
                ratios = apart[divisible] / np.abs(y[divisible])
                self.max_rel_difference = max(self.max_rel_difference, float(ratios.max()))
        if same.all():
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(same, 0.0, np.where(finite, apart / allowed, np.inf))
        index = tuple(int(place) for place in np.unravel_index(int(ratio.argmax()), ratio.shape))
        self._note_if_worst(float(ratio[index]), request, a[index], b[index], index)

    def _note_if_worst(self, ratio: float, request: str, a: Any, b: Any, index: tuple[int, ...] | None) -> None:
        if self.worst is None or ratio > self._worst_ratio:
            self._worst_ratio = ratio
            place = None if index is None else list(index)
            self.worst = Worst(request, place, _json_value(a), _json_value(b))


def outside(a: Array, b: Array, tolerance: Tolerance) -> Array:
    """Return for each element of two arrays of real numbers whether it is beyond the tolerance, as bool."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= tolerance.allowed(y))
        wrong: Array = ~((x == y) | (np.isnan(x) & np.isnan(y)) | near)
    return wrong


def is_real(array: Array) -> bool:
    """Return whether the elements of an array are real numbers."""
    # ml_dtypes' types are of kind "V" or "f" in different versions of NumPy.
    return array.dtype.kind == "f" or array.dtype.name in {"bfloat16", "float8_e5m2", "float8_e4m3fn"}


def _dtype_name(array: Array) -> str:
    return "string" if array.dtype.kind == "O" else array.dtype.name


def different_bits(a: Array, b: Array) -> int:
    """Return the number of elements whose bits differ; if the dtypes differ, all elements count."""
    if a.dtype != b.dtype:
        return a.size
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return int((np.ascontiguousarray(a).reshape(-1).view(bits) != np.ascontiguousarray(b).reshape(-1).view(bits)).sum())


def different_rows(a: Array, b: Array) -> Array:
    """Return for each row [n, ...] of two arrays of one dtype whether any bit differs: [n] bool."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    first, second = (np.ascontiguousarray(array).reshape(len(array), -1).view(bits) for array in (a, b))
    found: Array = (first != second).any(axis=1)
    return found


def _json_value(value: Any) -> Element:
    """Return a value that JSON can represent."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (str, bool)):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (complex, np.complexfloating)):
        return str(value)
    number = float(value)
    return number if np.isfinite(number) else str(number)
