# SPDX-License-Identifier: Apache-2.0
"""After deltas were applied, a live artifact has the outputs of the later export."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools import cut, optimize
from graph_tools.graph.op_library import load_library
from graph_tools.options import CutOptions
from graph_tools.readers import read_model
from graph_tools.readers.lineage import find_position
from graph_tools.store.delta import Delta
from graph_tools.store.timeline import list_segments
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tensors import ArrayTensor
from graph_tools.verbs.delta.make import make_delta
from graph_tools.writer import write_saved_model
from helpers.graph_tools.live_checks import perturbed
from helpers.graph_tools.stock_answers import Feeds, all_answers, requests_for
from helpers.models.exports_in_time import asked, export_at
from helpers.models.idiom_models import KEY, export_function, table
from helpers.oracles.outputs import assert_same_outputs
from helpers.system.programs import LIBRARY

NO_OPTIONS = CutOptions()

Answers = list[dict[str, np.ndarray]]


def live_answers(artifact: Path, timeline: Path, feeds: list[Feeds], signature: str) -> tuple[Answers, Answers]:
    """Return the outputs at the first epoch, and at the last one of a timeline."""
    load_library(LIBRARY)
    v1 = tf.compat.v1
    with v1.Graph().as_default() as graph, v1.Session() as session:
        served = v1.saved_model.load(session, ["serve"], str(artifact)).signature_def[signature]
        fetched = {key: info.name for key, info in served.outputs.items()}
        fed = [{served.inputs[key].name: value for key, value in each.items()} for each in feeds]
        before = [session.run(fetched, each) for each in fed]
        (live,) = [op for op in graph.get_operations() if op.type == "RecLiveModel"]
        segments = tf.constant([str(timeline / file.name) for file in list_segments(timeline)])
        applied = graph.create_op("RecApplySegments", [live.outputs[0], segments], [tf.int64])
        assert session.run(applied.outputs[0]) == len(list_segments(timeline))
        return before, [session.run(fetched, each) for each in fed]


def assert_same(found: Answers, expected: Answers) -> None:
    for after, before in zip(found, expected, strict=True):
        assert_same_outputs(after, before, exact=False)


def changed(source: Path, folder: Path) -> tuple[Path, Path]:
    """Write a model twice: as it is, and with other values of all float32 variables."""
    for name in ("old", "new"):
        model = read_model(source)
        floats = {key: tensor for key, tensor in model.variables.items() if tensor.dtype == np.float32}
        if name == "new":
            model.variables |= {key: ArrayTensor(perturbed(key, tensor.read())) for key, tensor in floats.items()}
        write_saved_model(model, folder / name)
    return folder / "old", folder / "new"


def check_epochs(
    folder: Path,
    exports: list[Path],
    answered: list[Path],
    feeds: list[Feeds],
    signature: str,
    options: CutOptions = NO_OPTIONS,
) -> None:
    """Follow exports from the first to the last one; `answered` have the outputs of these two."""
    for old, new in itertools.pairwise(exports):
        make_delta(old, new, folder / "timeline", absent_key=options.absent_key)
    optimize(exports[0], folder / "live", options=options, live=True, precision="fp32", accept_weak_proof=True)
    found = live_answers(folder / "live", folder / "timeline", feeds, signature)
    expected = [all_answers(path, feeds, signature) for path in answered]
    assert any(not np.array_equal(a[key], b[key]) for a, b in zip(*expected, strict=True) for key in a)
    # Scores that are all 0 or 1 would prove little.
    assert any(np.unique(each[key]).size > 2 for each in expected[1] for key in each)
    for answers, wanted in zip(found, expected, strict=True):
        assert_same(answers, wanted)


def test_deepctr_models_follow_deltas(deepctr_model: Path, tmp_path: Path) -> None:
    exports = list(changed(deepctr_model, tmp_path))
    feeds = requests_for(deepctr_model)["serving_default"]
    check_epochs(tmp_path, exports, exports, feeds, "serving_default")


def test_ids_of_wide_and_deep_follow_deltas(idwdl_model: Path, tmp_path: Path) -> None:
    exports = list(changed(idwdl_model, tmp_path))
    feeds = requests_for(idwdl_model)["serving_default"]
    check_epochs(tmp_path, exports, exports, feeds, "serving_default")


def test_vocabularies_and_variables_that_are_read_follow_deltas(tmp_path: Path) -> None:
    words = ["apple", "pear", "plum"]
    held = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.constant([3, 1, 4], tf.int64)), 0)
    rows, scale = tf.Variable(table(6, 4), name="rows"), tf.Variable(np.float32(1.5), name="scale")

    def serve(word: Any, number: Any) -> dict[str, Any]:
        return {"rows": tf.gather(rows, held.lookup(word)), "all": number * tf.reduce_sum(rows) * scale}

    specs = [tf.TensorSpec([None], tf.string, name="word"), tf.TensorSpec([None], tf.float32, name="number")]
    source = export_function(tmp_path / "in", serve, specs, rows=rows, scale=scale, held=held)
    exports = list(changed(source, tmp_path))
    feeds = [{"word": np.array([b"plum", b"nothing", b"apple"], object), "number": np.float32([1, 2, 0])}]
    check_epochs(tmp_path, exports, exports, feeds, KEY)


@pytest.mark.parametrize("family", ["deeprec", "hps", "monolith", "tensornet", "tfplus_strings", "tfra"])
def test_tables_of_training_systems_follow_deltas(family: str, tmp_path: Path) -> None:
    exports = [export_at(family, tmp_path / str(moment), moment) for moment in range(3)]
    options = CutOptions(absent_key={"*": "zero"}) if family == "tensornet" else NO_OPTIONS
    for moment in (0, 2):
        cut(exports[moment], tmp_path / f"cut_{moment}", options=options, accept_weak_proof=True)
    (name,) = read_model(exports[0], absent_key=dict(options.absent_key)).signatures["serving_default"].inputs
    feeds: list[Feeds] = [{name: asked(family)}]
    answered = [tmp_path / "cut_0", tmp_path / "cut_2"]
    check_epochs(tmp_path, exports, answered, feeds, "serving_default", options)


def test_changes_of_what_is_not_served_are_skipped(tmp_path: Path) -> None:
    kernel, momentum = (tf.Variable(table(3, 2), name=name) for name in ("kernel", "momentum"))
    specs = [tf.TensorSpec([None, 3], tf.float32, name="x")]
    source = export_function(
        tmp_path / "in", lambda x: {"y": tf.nn.relu(x @ kernel)}, specs, kernel=kernel, momentum=momentum
    )
    optimize(source, tmp_path / "live", live=True, precision="fp32", accept_weak_proof=True)
    described = json.loads((tmp_path / "live/assets/live.json").read_text())
    feeds: list[Feeds] = [{"x": np.ones((2, 3), np.float32)}]
    for folder, name in (("skipped", described["unserved"][0]), ("refused", "nothing")):
        writer = TimelineWriter(tmp_path / folder, find_position(source), "the test")
        writer.publish(Delta((), {name: ArrayTensor(table(3, 2))}))
    before, after = live_answers(tmp_path / "live", tmp_path / "skipped", feeds, KEY)
    np.testing.assert_array_equal(before[0]["y"], after[0]["y"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="variable 'nothing': not in the model"):
        live_answers(tmp_path / "live", tmp_path / "refused", feeds, KEY)
