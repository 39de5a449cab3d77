# SPDX-License-Identifier: Apache-2.0
"""Write the recorded requests of a model, TensorFlow Serving's warm-up file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FILE = "assets.extra/tf_serving_warmup_requests"


def write_records(model: Path, requests: Iterable[bytes]) -> Path:
    """Write serialized PredictRequests as TFRecords of PredictionLog."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    file = model / FILE
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for request in requests:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.ParseFromString(request)
            writer.write(log.SerializeToString())
    return file
