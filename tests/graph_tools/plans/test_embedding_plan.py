# SPDX-License-Identifier: Apache-2.0
"""Plans of embedding groups are written to JSON and read back, and wrong ones are refused."""

import json
from dataclasses import replace

import pytest

from graph_tools.errors import UnreadableError
from graph_tools.plans.embedding_parts import (
    Add,
    Bucketize,
    Clip,
    Copy,
    Factor,
    FastHash,
    GroupOutput,
    Key,
    LegacyHash,
    Linear,
    Lookup,
    Mod,
    Multiply,
    StrongHash,
    ToString,
)
from graph_tools.plans.embedding_plan import EmbeddingPlan

# The example of docs/fused_ops.md.
DOCUMENTED = {
    "version": 1,
    "outputs": [{"width": 45}, {"width": 1, "initial": [0.5]}, {"width": 32, "sequence": 0}],
    "keys": [
        {"feature": 0, "ignore": "", "steps": [{"op": "fast_hash", "buckets": 1000}]},
        {"feature": 1, "layout": "sparse", "indices": 2, "shape": 3},
    ],
    "columns": [
        {"kind": "copy", "feature": 5, "output": 0, "offset": 0, "width": 13},
        {"kind": "lookup", "key": 0, "table": 0, "output": 0, "offset": 13},
        {"kind": "lookup", "key": 1, "table": 1, "output": 0, "offset": 29, "combiner": "mean", "weights": 4},
        {"kind": "lookup", "key": 0, "table": 2, "output": 1, "offset": 0, "accumulate": True},
        {"kind": "linear", "feature": 5, "output": 1, "offset": 0, "weights": [[0.25], [0.5]]},
    ],
}
PLAN = EmbeddingPlan.from_json(json.dumps(DOCUMENTED))
DIMS = [16, 16, 1]


def test_documented_plan_is_read_and_written_alike() -> None:
    assert json.loads(PLAN.to_json()) == DOCUMENTED
    PLAN.check(features=6, dims=DIMS)
    assert PLAN.keys[0] == Key(0, ignore="", steps=(FastHash(1000),))
    assert PLAN.columns[1] == Lookup(0, 0, 0, 13)


def test_every_step_is_read_back_from_json() -> None:
    steps = (
        Bucketize((0.1, 2.0)),
        ToString(),
        StrongHash(7, (1, (1 << 64) - 1)),
        Mod(5),
        Add(-1),
        Multiply(3),
        Clip(0, 4),
    )
    plan = EmbeddingPlan(
        (GroupOutput(4),), (Key(0, steps=steps), Key(1, ignore=-1, ignore_negative=True)), (Lookup(0, 0, 0, 0),)
    )
    plan.check(2, [4])
    assert EmbeddingPlan.from_json(plan.to_json()) == plan
    assert plan.to_json() == EmbeddingPlan.from_json(plan.to_json()).to_json()


def test_layouts_name_their_features() -> None:
    assert list(Key(3, "sparse", indices=4, shape=5).features()) == [3, 4, 5]
    assert list(Key(3, "segments", segment_ids=1, rows=0).features()) == [3, 1, 0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "JSON"),
        ('{"version":2,"outputs":[],"keys":[],"columns":[]}', "version"),
        ('{"version":1,"outputs":[],"keys":[]}', "no 'columns'"),
        ('{"version":1,"outputs":[{"width":1,"wide":2}],"keys":[],"columns":[]}', "'wide'"),
        ('{"version":1,"outputs":[{"width":1.5}],"keys":[],"columns":[]}', "1.5"),
        ('{"version":1,"outputs":[{"width":true}],"keys":[],"columns":[]}', "True"),
        ('{"version":1,"outputs":[],"keys":[{"feature":0,"steps":[{"op":"md5"}]}],"columns":[]}', "md5"),
        ('{"version":1,"outputs":[],"keys":[{"feature":0,"ignore":1.0}],"columns":[]}', "str or int"),
        ('{"version":1,"outputs":[{"width":1,"initial":[NaN]}],"keys":[],"columns":[]}', "nan"),
    ],
)
def test_bad_text_is_refused_by_name(text: str, found: str) -> None:
    with pytest.raises(UnreadableError, match=found):
        EmbeddingPlan.from_json(text)


def with_key(key: Key) -> EmbeddingPlan:
    return replace(PLAN, keys=(key, PLAN.keys[1]))


def with_column(column: Lookup | Copy | Linear) -> EmbeddingPlan:
    return replace(PLAN, columns=(column,))


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        (with_key(Key(6)), "feature 6"),
        (with_key(Key(0, "csr")), "csr"),
        (with_key(Key(0, "sparse", indices=1)), "shape None"),
        (with_key(Key(0, row_splits=1)), "row_splits"),
        (with_key(Key(0, steps=(FastHash(0),))), "0 buckets"),
        (with_key(Key(0, steps=(FastHash(3), LegacyHash(3)))), "of a number"),
        (with_key(Key(0, steps=(ToString(), Mod(3)))), "of a string"),
        (with_key(Key(0, steps=(Mod(0),))), "mod by 0"),
        (with_key(Key(0, steps=(Clip(2, 1),))), "clip"),
        (with_key(Key(0, steps=(Add(1), Bucketize((1.0,))))), "bucketize after"),
        (with_key(Key(0, steps=(Bucketize((2.0, 1.0)),))), "ascending"),
        (with_key(Key(0, steps=(StrongHash(3, (1,)),))), "64 bits"),
        (with_key(Key(0, steps=(Add(1 << 63),))), "int64"),
        (with_column(Lookup(2, 0, 0, 0)), "key 2"),
        (with_column(Lookup(0, 3, 0, 0)), "table 3"),
        (with_column(Lookup(0, 0, 3, 0)), "output 3"),
        (with_column(Lookup(0, 0, 0, 30)), "30-46"),
        (with_column(Lookup(0, 0, 0, -1)), "offset -1"),
        (with_column(Lookup(1, 0, 0, 0)), "without combiner"),
        (with_column(Lookup(0, 0, 0, 0, "max")), "max"),
        (with_column(Lookup(0, 0, 0, 0, weights=4)), "weights"),
        (with_column(Lookup(0, 0, 2, 0, "sum")), "sequence"),
        (with_column(Lookup(0, 0, 0, 0, factors=(Factor(2, 0),))), "factor 0: key 2"),
        (with_column(Lookup(0, 0, 0, 0, factors=(Factor(0, 3),))), "factor 0: table 3"),
        (with_column(Lookup(0, 0, 0, 0, factors=(Factor(0, 2),))), "rows of 1 elements, expected 16"),
        (with_column(Lookup(0, 0, 0, 0, factors=(Factor(1, 0),))), "of the form of key 0"),
        (with_column(Lookup(0, 0, 0, 0, "sum", empty="a", factors=(Factor(0, 1),))), "an empty key with factors"),
        (with_column(Copy(0, 0, 40, 6)), "40-46"),
        (with_column(Copy(0, 0, 40, 0)), "at least one"),
        (with_column(Copy(0, 2, 0, 1)), "sequence"),
        (with_column(Linear(0, 0, 0, ((1.0,), (1.0, 2.0)))), "all of one length"),
        (with_column(Linear(0, 0, 0, ((float("inf"),),))), "finite"),
        (replace(PLAN, outputs=(GroupOutput(0),)), "width 0"),
        (replace(PLAN, outputs=(GroupOutput(2, (1.0,)),)), "1 initial values"),
        (replace(PLAN, outputs=(GroupOutput(2, sequence=2),)), "sequence 2"),
    ],
)
def test_wrong_plan_is_refused_by_name(plan: EmbeddingPlan, found: str) -> None:
    with pytest.raises(UnreadableError, match=found):
        plan.check(features=6, dims=DIMS)
