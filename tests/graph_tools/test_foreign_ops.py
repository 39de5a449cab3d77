# SPDX-License-Identifier: Apache-2.0
"""Test models with ops of a further library: they are converted, and verified only with that library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graph_tools import cut, fuse, optimize
from graph_tools.errors import ConversionError
from graph_tools.graph.op_library import load_library
from graph_tools.readers import read_model
from helpers.graph_tools.cut_models import run

OP = """
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace {
REGISTER_OP("AcmeTwice").Input("x: float").Output("y: float").SetShapeFn(tensorflow::shape_inference::UnchangedShape);

class AcmeTwiceOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    tensorflow::Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(0).shape(), &y));
    const auto from = context->input(0).flat<float>();
    auto to = y->flat<float>();
    for (int64_t i = 0; i < from.size(); ++i) to(i) = 2 * from(i);
  }
};
REGISTER_KERNEL_BUILDER(Name("AcmeTwice").Device(tensorflow::DEVICE_CPU), AcmeTwiceOp);
}  // namespace
"""

EXPORT = """
import sys

import numpy as np
import tensorflow as tf

twice = tf.load_op_library(sys.argv[1]).acme_twice
rng = np.random.default_rng(0)


class Tower(tf.Module):
    def __init__(self):
        super().__init__()
        self.first = tf.Variable(rng.normal(size=(4, 16)).astype(np.float32))
        self.bias = tf.Variable(rng.normal(size=16).astype(np.float32))
        self.last = tf.Variable(rng.normal(size=(16, 1)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def serve(self, x):
        hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(tf.reshape(twice(x), [-1, 4]), self.first), self.bias))
        return {"y": tf.sigmoid(tf.matmul(hidden, self.last))}


module = Tower()
tf.saved_model.save(module, sys.argv[2], signatures=module.serve)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with one op, compiled here."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("library")
    (folder / "op.cc").write_text(OP)
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    command = ["g++", "-shared", "-fPIC", "-O1", "-o", "acme.so", "op.cc", *flags]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder / "acme.so"


@pytest.fixture(scope="module")
def source(library: Path) -> Path:
    """A model that uses the op, exported by a process that has it."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", EXPORT, str(library), str(library.parent / "model")]
    subprocess.run(command, check=True, timeout=300, env=environment)
    return library.parent / "model"


# One test: once this process has loaded the library, the op is known.
def test_unknown_ops_are_kept_and_verified_with_their_library(library: Path, source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"1 unknown op: AcmeTwice .node .*needed by output 'y'.*--op-library"):
        cut(source, tmp_path / "out")
    report = cut(source, tmp_path / "unproved", check=False)
    assert [op.op for op in report.unknown_ops] == ["AcmeTwice"]
    assert read_model(tmp_path / "unproved").graph.of("AcmeTwice")
    found = run("cut", source, tmp_path / "told", "--no-verify")
    assert found.code == 0
    assert "not verified: --no-verify was given; AcmeTwice was not run, since no given library has it" in found.out
    assert fuse(source, None, dry_run=True).unknown_ops
    unproved = fuse(source, tmp_path / "unproved_fused", check=False)
    assert sum(pass_.applied for pass_ in unproved.fused) == 1

    found = run("cut", source, tmp_path / "proved", "--op-library", library)
    assert (found.code, found.err) == (0, "")
    assert "verified" in found.out
    both = optimize(source, tmp_path / "fused", op_library=[library, load_library()])
    assert not both.unknown_ops
    assert both.verification is not None
    assert both.verification.passed
    assert sum(pass_.applied for pass_ in both.fused) == 1
    assert run("verify", source, tmp_path / "fused", "--op-library", library, "--op-library", load_library()).code == 0
