# SPDX-License-Identifier: Apache-2.0
"""Write W2 in int8 for OpenVINO, as NNCF quantizes it after training. Runs in the peers' environment.

python make_int8.py MODEL.onnx MODEL.xml
"""

import sys
from pathlib import Path

import nncf
import numpy as np
import openvino

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from load_tests.request_files import random_inputs

#: Requests that scales are found from, and their rows.
REQUESTS, ROWS = 64, 128


def main(source: str, target: str) -> None:
    """Find the scales from requests like those that are measured, with another seed."""
    random = np.random.default_rng(1)
    requests = [random_inputs("W2", ROWS, random) for _ in range(REQUESTS)]
    model = openvino.Core().read_model(source)
    # The default is the fastest: it also stores tables in int8, which ours keep in fp32.
    quantized = nncf.quantize(model, nncf.Dataset(requests), subset_size=REQUESTS)
    Path(target).parent.mkdir(parents=True)
    openvino.save_model(quantized, target, compress_to_fp16=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
