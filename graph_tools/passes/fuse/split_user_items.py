# SPDX-License-Identifier: Apache-2.0
"""Compute nodes that depend only on the user once per request, for any number of items to score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from graph_tools.analysis.row_rules import BATCH_PRODUCTS, BROADCASTS
from graph_tools.analysis.rows import ITEMS, USER, Rows
from graph_tools.analysis.user_rows import COLLAPSE, EXPAND, user_inputs
from graph_tools.graph import Node, Output, attribute, dtype_of
from graph_tools.model import Model, Signature
from graph_tools.options import matching
from graph_tools.recognition.user_columns import ProductSplitter, SplitProduct, find_products
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.sweep import sweep

_NO_WORK = {
    "Cast", "ConcatV2", "ExpandDims", "Identity", "Pack", "Placeholder", "Reshape", "Slice", "Snapshot", "Split",
    "SplitV", "Squeeze", "StopGradient", "StridedSlice", "Unpack",
}  # fmt: skip
_AS_MANY = {"AddN", "BatchMatMul", "ConcatV2", "Pack", "Select"}
_WHY = "what is the user's alone is computed once"


class SplitUserItems(Pass):
    """Compute nodes that depend only on the user's inputs on one row, and broadcast it to the rows of the items.

    Before: `ConcatV2(f(user), g(items)) → MatMul(W) → …`.
    After: `MatMul(f(RecCollapseRows(user)), W_user) + MatMul(g(items), W_items) → …`.

    `RecCollapseRows` passes on one row if a request has one row, or equal rows, for all user inputs, else all rows. If
    TensorFlow broadcasts along the first dimension, nothing else is needed; sums of many terms become one sum for each
    side; everywhere else `RecExpandRows` repeats the row. The pass requires that every op that the user's inputs reach
    is known to compute each row independently.

    Parameters
    ----------
    user_inputs : sequence of str
        Names or patterns (`fnmatch`) of inputs of the signatures.
    """

    name = "split_user_items"

    def __init__(self, user_inputs: Sequence[str] = ()) -> None:
        self.user_inputs = tuple(user_inputs)

    def process(self, model: Model, result: PassResult) -> None:
        for group in _groups(model, self.user_inputs, result):
            found = _plan(model, group)
            if isinstance(found, _Plan):
                _Splitter(model, group, found).run()
                result.applied += 1
            else:
                result.refused += found

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the signatures that could still be split."""
        for group in _groups(model, self.user_inputs, PassResult(self.name)):
            if isinstance(_plan(model, group), _Plan):
                yield from group.signatures


class _Group:
    """Signatures that have the same user inputs.

    Attributes
    ----------
    user : list of Output
    signatures : dict of str to Signature
    """

    def __init__(self, user: list[Output], signatures: dict[str, Signature]) -> None:
        self.user, self.signatures = user, signatures

    @property
    def items(self) -> dict[Output, bool]:
        """Return the other inputs, and whether all signatures have them."""
        inputs = [{end.tensor for end in signature.inputs.values()} for signature in self.signatures.values()]
        found = dict.fromkeys(end.tensor for signature in self.signatures.values() for end in signature.inputs.values())
        return {
            tensor: all(tensor in signature_inputs for signature_inputs in inputs)
            for tensor in found
            if tensor not in self.user
        }


def _groups(model: Model, patterns: Sequence[str], result: PassResult) -> Iterable[_Group]:
    """Group signatures by their user inputs; refuse signatures that share only some of them."""
    groups: dict[frozenset[Output], _Group] = {}
    for name, signature in model.signatures.items():
        keys = matching(patterns, signature.inputs)
        used = [tensor for tensor in (signature.inputs[key].tensor for key in keys) if model.graph.uses(tensor)]
        split = user_inputs(model.graph, signature)
        if split:
            # The model is fused again: it is split already.
            if used and not set(split) <= set(keys):
                result.refused.append((name, f"it is split already: the user's are {', '.join(split)}"))
        elif used:
            groups.setdefault(frozenset(used), _Group(used, {})).signatures[name] = signature
    for inputs, group in groups.items():
        if any(inputs & other for other in groups if other != inputs):
            names = ", ".join(group.signatures)
            result.refused.append((names, "another signature has some of its user inputs, expected all or none"))
        else:
            yield group


class _Plan:
    """The analysis of a graph that may be split.

    Attributes
    ----------
    rows : Rows
    products : list of SplitProduct
    like : Output
        An input with a row for each item.
    """

    def __init__(self, rows: Rows, products: list[SplitProduct], like: Output) -> None:
        self.rows, self.products, self.like = rows, products, like


def _plan(model: Model, group: _Group) -> _Plan | list[tuple[str, str]]:
    """Prove that rows may be computed separately, or return the reasons against it."""
    graph, items = model.graph, group.items
    rows = Rows(model, group.user, items)
    for tensor in group.user:
        if not rows.has_rows(tensor):
            return [(tensor.node, "it has no first dimension of any size, expected one for the rows")]
    like = _input_with_item_rows(rows, [item for item, everywhere in items.items() if everywhere])
    if like is None:
        return [(", ".join(group.signatures), "no input meets the user's with a row for each item")]
    crossing = {name: why for name, why in rows.crossing.items() if USER in rows.sides[name]}
    if crossing:
        # Report only first causes, not the nodes that follow from them.
        return [
            (name, why)
            for name, why in crossing.items()
            if not any(source.node in crossing for source in graph[name].inputs)
        ]
    products = find_products(model, rows)
    works = any(node.op not in _NO_WORK and rows.is_of(node.output(), USER) for node in graph)
    if not products and not works:
        return [(", ".join(group.signatures), "nothing is computed of the user's inputs alone")]
    return _Plan(rows, products, like)


def _input_with_item_rows(rows: Rows, inputs: Iterable[Output]) -> Output | None:
    """Return an input whose rows meet those of the user, preferably at an op that demands equal numbers of rows.

    The parts of sparse and ragged tensors have other rows; they are not followed beyond the op that makes them dense.
    """
    meeting = {source: _meets(rows, source) for source in inputs if rows.has_rows(source)}
    return next((source for strict in (True, False) for source, found in meeting.items() if strict in found), None)


def _meets(rows: Rows, output: Output) -> set[bool]:
    """Follow item rows to nodes that also use user rows; return whether these demand equal numbers of rows."""
    found: set[bool] = set()
    seen, waiting = {output.node}, [output.node]
    while waiting:
        for user in rows.graph.users(waiting.pop()):
            if USER in rows.sides[user.name]:
                found.add(user.op in _AS_MANY)
            elif user.name not in seen and rows.has_rows(user.output()):
                seen.add(user.name)
                waiting.append(user.name)
    return found


class _Splitter:
    """Rewrites a graph according to a plan."""

    def __init__(self, model: Model, group: _Group, plan: _Plan) -> None:
        self.model, self.graph, self.group = model, model.graph, group
        self.rows, self.products, self.like = plan.rows, plan.products, plan.like
        self._whole: dict[Output, Output] = {}

    def run(self) -> None:
        """Split products, expand tensors that do not broadcast, and collapse the inputs."""
        splitter = ProductSplitter(self.model, self.rows)
        for product in self.products:
            splitter.split(product)
        for node in self.graph.ordered():
            if self.rows.sides.get(node.name, frozenset()) == {USER, ITEMS}:
                self._join_sides(node)
        for signature in self.group.signatures.values():
            for key, endpoint in signature.outputs.items():
                if self._is_user(endpoint.tensor):
                    signature.outputs[key] = replace(endpoint, tensor=self._expanded(endpoint.tensor))
        self._collapse()

    def _is_user(self, output: Output) -> bool:
        return self.rows.is_of(output, USER)

    def _join_sides(self, node: Node) -> None:
        """Repeat the user's inputs of a node that uses both sides, unless they broadcast to the items' rows."""
        if node.op == "AddN":
            self._add_per_side(node)
        elif node.op == "ConcatV2":
            self._join_runs(node)
        elif not self._broadcasts(node):
            for index, source in enumerate(node.inputs):
                if self._is_user(source):
                    self.graph.set_input(node, index, self._expanded(source))

    def _broadcasts(self, node: Node) -> bool:
        """Return whether an op repeats one row itself."""
        if node.op not in BROADCASTS and node.op not in BATCH_PRODUCTS:
            return False
        has_all = any(self.rows.has_rows(source) for source in node.inputs if not self._is_user(source))
        return has_all and all(self.rows.has_rows(source) for source in node.inputs if self._is_user(source))

    def _add_per_side(self, node: Node) -> None:
        user = [source for source in node.inputs if self._is_user(source)]
        others = [source for source in node.inputs if not self._is_user(source)]
        if not user:
            return
        if not any(map(self.rows.has_rows, others)):
            self.graph.set_inputs(
                node, [self._expanded(source) if source in user else source for source in node.inputs]
            )
            return
        dtype = attribute(node, "T")
        terms = []
        for name, parts in (("user", user), ("items", others)):
            attrs = {"N": len(parts), "T": dtype}
            added = parts[0]
            if len(parts) > 1:
                added = self.graph.add("AddN", parts, name=f"{node.name}/{name}", attrs=attrs).output()
            terms.append(added)
        self.graph.become(node, "AddV2", terms, {"T": dtype})

    def _join_runs(self, node: Node) -> None:
        """Join adjacent inputs of the user's side before they are repeated."""
        parts, axis = node.inputs[:-1], node.inputs[-1]
        runs: list[list[Output]] = []
        for i, part in enumerate(parts):
            if i and self._is_user(part) and self._is_user(parts[i - 1]):
                runs[-1].append(part)
            else:
                runs.append([part])
        inputs = []
        for run in runs:
            joined = run[0]
            if len(run) > 1:
                attrs = dict(node.attrs) | {"N": len(run)}
                made = self.graph.add("ConcatV2", [*run, axis], name=f"{node.name}/user", attrs=attrs)
                joined = self._expand(made.output())
            elif self._is_user(joined):
                joined = self._expanded(joined)
            inputs.append(joined)
        self.graph.set_inputs(node, [*inputs, axis])
        self.graph.set_attr(node, "N", len(inputs))

    def _expanded(self, output: Output) -> Output:
        """Return an output of the user's side for all rows: repeated, or computed again if it has no separate rows."""
        if output not in self._whole:
            if self.rows.has_rows(output):
                self._whole[output] = self._expand(output)
            else:
                node = self.graph[output.node]
                inputs = [self._expanded(source) if self._is_user(source) else source for source in node.inputs]
                made = self.graph.add(node.op, inputs, name=f"{node.name}/rows", attrs=dict(node.attrs))
                self._whole[output] = made.output(output.port)
        return self._whole[output]

    def _expand(self, output: Output) -> Output:
        attrs = {"T": dtype_of(self.graph, output), "Tlike": dtype_of(self.graph, self.like)}
        return self.graph.add(EXPAND, [output, self.like], name=f"{output.node}/rows", attrs=attrs).output()

    def _collapse(self) -> None:
        used = {tensor: self.graph.uses(tensor) for tensor in self.group.user}
        attrs = {"T": [dtype_of(self.graph, tensor) for tensor in used], "Tlike": dtype_of(self.graph, self.like)}
        node = self.graph.add(COLLAPSE, [*used, self.like], name="user_rows", attrs=attrs)
        for port, uses in enumerate(used.values()):
            for user, index in uses:
                self.graph.set_input(user, index, node.output(port))
        unused = [node.name for node in self.graph if self._is_user(node.output()) and not self.graph.users(node.name)]
        sweep(self.model, unused, _WHY, give_way=True)
