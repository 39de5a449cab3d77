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

# Numbers of an output that the rank correlation looks at, the first ones.
_RANKED = 1 << 20


@dataclass(frozen=True)
class Tolerance:
    """How far outputs may be apart: `|a - b| <= absolute + relative * |b|`, with b of the second model."""

    absolute: NotNegative = 1e-5
    relative: NotNegative = 1e-5

    @staticmethod
    def parse(text: str) -> Tolerance:
        """Read `ABS` or `ABS,REL`; `ABS` alone leaves the relative part 0.

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
        """Return how far each element may be from the second model's [...] float64."""
        found: Array = self.absolute + self.relative * np.abs(b)
        return found


@dataclass(frozen=True)
class AnswerTolerance(Tolerance):
    """The relative part is of the largest score of an answer, since sums of large numbers may cancel."""

    def allowed(self, b: Array) -> Array:
        finite = np.abs(b[np.isfinite(b)])
        return np.full(b.shape, self.absolute + self.relative * float(finite.max(initial=0.0)))


#: How far a score may move where rows or weights are rounded and nobody said how far it may.
FAR = AnswerTolerance(0.05, 0.1)


@dataclass
class Worst:
    """Where two answers differ most in terms of the tolerance.

    Attributes
    ----------
    index : list of int or None
        None: their shapes differ.
    a, b : str, number or bool
        The elements there.
    """

    request: str
    index: list[Count] | None
    a: Element
    b: Element


@dataclass
class OutputComparison:
    """How an output of both models differs over all requests.

    Attributes
    ----------
    dtype : str
        Of the first model, or `a != b` where they differ.
    elements : int
        Compared.
    beyond : int
        Elements that differ by more than the tolerance; of integers, booleans and strings, that differ at all.
    unsettled : int
        Elements that are beyond the tolerance and not counted there, since they hang on how sums are rounded: the first
        model's own move as far when numbers of the request change in their last place.
    different : int
        Elements whose bits differ.
    max_abs_difference : float
        Largest |a - b| of finite elements.
    max_rel_difference : float
        Largest |a - b| / |b| of finite elements with b != 0.
    nan_a, nan_b : int
        Elements that are not a number. NaN equals NaN only.
    nan_apart : int
        Elements that are not a number in one model alone, those of `rewritten` left out.
    far : int
        Elements that differ by more than 0.05 + 0.1 x the largest score of their answer.
    rewritten : int
        Elements that are beyond the tolerance and not counted there: the request has numbers that are not finite, and
        with the other setting of oneDNN both models answer alike. TensorFlow rewrites the second graph otherwise.
    shapes : int
        Requests whose answers have different shapes; none of their elements is compared.
    rank_correlation : float or None
        Spearman's, over all requests; None: not a real number, or the same value everywhere.
    auc_a, auc_b : float or None
        Area under the ROC curve, where requests have labels.
    worst : Worst or None
        Where the difference is largest in terms of the tolerance.
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
        """Whether no bit differs."""
        return self.different == 0 and self.shapes == 0 and "!=" not in self.dtype

    @property
    @reported
    def equal(self) -> bool:
        """Whether all is within the tolerance."""
        return self.beyond == 0 and self.shapes == 0 and "!=" not in self.dtype

    @property
    def only_scores_differ(self) -> bool:
        """Whether all differences are between real numbers, in answers of one shape and dtype."""
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
        """Compare the answers to one request.

        `slack` is added to what each element may differ by; where `alike` is true, a difference is TensorFlow's own.
        """
        if a.dtype != b.dtype:
            self.dtype = f"{_dtype_name(a)} != {_dtype_name(b)}"
        if a.shape != b.shape:
            self.shapes += 1
            self._worse(np.inf, request, f"shape {list(a.shape)}", f"shape {list(b.shape)}", None)
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
        """Work out what needs all requests, and let go of their answers."""
        if self._values:
            a, b = (np.concatenate([value[side] for value in self._values]).astype(np.float64) for side in (0, 1))
            self.rank_correlation = spearman(a, b)
        if self._labels:
            labels, a, b = (np.concatenate([label[side] for label in self._labels]) for side in (0, 1, 2))
            self.auc_a, self.auc_b = auc(labels, a), auc(labels, b)
        self._values, self._labels = [], []

    def _add_exact(self, a: Array, b: Array, request: str) -> None:
        """Integers, booleans, strings: a score may be a little off, an id may not."""
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
            index = tuple(int(one) for one in np.argwhere(wrong)[0])
            self._worse(np.inf, request, a[index], b[index], index)

    def _add_real(
        self, a: Array, b: Array, tolerance: Tolerance, request: str, slack: Array | None, alike: Array | None
    ) -> None:
        self.different += different_bits(a, b)
        # Doubles hold every number of the smaller dtypes, so that the difference itself is not rounded.
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
        index = tuple(int(one) for one in np.unravel_index(int(ratio.argmax()), ratio.shape))
        self._worse(float(ratio[index]), request, a[index], b[index], index)

    def _worse(self, ratio: float, request: str, a: Any, b: Any, index: tuple[int, ...] | None) -> None:
        if self.worst is None or ratio > self._worst_ratio:
            self._worst_ratio = ratio
            place = None if index is None else list(index)
            self.worst = Worst(request, place, _plain(a), _plain(b))


def outside(a: Array, b: Array, tolerance: Tolerance) -> Array:
    """Say of each element of two arrays of real numbers whether it is beyond the tolerance: bool."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= tolerance.allowed(y))
        wrong: Array = ~((x == y) | (np.isnan(x) & np.isnan(y)) | near)
    return wrong


def is_real(array: Array) -> bool:
    """Say whether an array is of real numbers."""
    # ml_dtypes' types are of kind "V" or "f" in different versions of NumPy.
    return array.dtype.kind == "f" or array.dtype.name in {"bfloat16", "float8_e5m2", "float8_e4m3fn"}


def _dtype_name(array: Array) -> str:
    return "string" if array.dtype.kind == "O" else array.dtype.name


def different_bits(a: Array, b: Array) -> int:
    """Count the elements whose bits differ; all of them where the dtypes do."""
    if a.dtype != b.dtype:
        return a.size
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return int((np.ascontiguousarray(a).reshape(-1).view(bits) != np.ascontiguousarray(b).reshape(-1).view(bits)).sum())


def different_rows(a: Array, b: Array) -> Array:
    """Say of each row [n, ...] of two arrays of one dtype whether any bit differs: [n] bool."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    first, second = (np.ascontiguousarray(one).reshape(len(one), -1).view(bits) for one in (a, b))
    found: Array = (first != second).any(axis=1)
    return found


def _plain(value: Any) -> Element:
    """Make a value that JSON can hold."""
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
