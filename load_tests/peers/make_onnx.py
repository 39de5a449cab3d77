# SPDX-License-Identifier: Apache-2.0
"""Write W2 as an ONNX graph: gathers, a concatenation, four Gemm. Runs in the peers' environment.

python make_onnx.py WEIGHTS.npz MODEL.onnx
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def main(weights: str, target: str) -> None:
    """Build the graph from the weights that `export_weights.py` wrote."""
    arrays = np.load(weights)
    initializers, nodes, columns = [], [], ["dense"]
    inputs = [helper.make_tensor_value_info("dense", TensorProto.FLOAT, ["batch", 13])]

    def constant(name: str) -> str:
        initializers.append(numpy_helper.from_array(arrays[name], name))
        return name

    for i in range(26):
        inputs.append(helper.make_tensor_value_info(f"C{i + 1}", TensorProto.INT64, ["batch"]))
        nodes.append(helper.make_node("Gather", [constant(f"tables_{i}"), f"C{i + 1}"], [f"row_{i}"], axis=0))
        columns.append(f"row_{i}")
    nodes.append(helper.make_node("Concat", columns, ["h0"], axis=1))
    for i in range(4):
        gemm = [f"h{i}", constant(f"kernels_{i}"), constant(f"biases_{i}")]
        nodes.append(helper.make_node("Gemm", gemm, [f"g{i}"]))
        last = i == 3
        nodes.append(helper.make_node("Sigmoid" if last else "Relu", [f"g{i}"], ["prob" if last else f"h{i + 1}"]))
    outputs = [helper.make_tensor_value_info("prob", TensorProto.FLOAT, ["batch", 1])]
    graph = helper.make_graph(nodes, "idwdl", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
