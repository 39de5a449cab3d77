# SPDX-License-Identifier: Apache-2.0
"""Read recorded requests: warm-up files of TensorFlow Serving, requests in the EAS format, and `.npz` files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError, UsageError
from graph_tools.model import Signature
from graph_tools.readers.tfrecord import masked_crc, record_batches, tfrecord_compression
from graph_tools.tensors import Array
from graph_tools.verification.messages import messages
from graph_tools.verification.request import Request

DEFAULT_SIGNATURE = "serving_default"
WARM_UP_FILE = "tf_serving_warmup_requests"
LABELS = "labels"
# Largest number of rows of a `.npz` file that form one request.
_ROWS = 4096

Signatures = Mapping[str, Signature]


def read_requests(path: str | Path, signatures: Signatures) -> list[Request]:
    """Read the requests of a file; its kind is found from its content and its suffix.

    Parameters
    ----------
    path : path
        A TFRecord file of PredictionLog messages (`assets.extra/tf_serving_warmup_requests`), a serialized
        `PredictRequest` of the EAS format, or a `.npz` file with an array for each input of a signature and,
        optionally, `labels`.
    signatures : mapping of str to Signature
        Signatures that the requests may use.

    Raises
    ------
    UnreadableError
        The file is missing or damaged, or is none of these kinds.
    UsageError
        A request names an input or signature that the model does not have.
    """
    path = Path(path)
    if path.is_dir() and (path / WARM_UP_FILE).is_file():
        path = path / WARM_UP_FILE
    if not path.is_file():
        raise UnreadableError(f"{path}: does not exist, expected a file of requests")
    kind = _npz if path.suffix == ".npz" else _prediction_logs if _is_tfrecord(path) else _eas
    found = list(kind(path, signatures))
    if not found:
        raise UnreadableError(f"{path}: no Predict request in it, expected at least one")
    return found


def _is_tfrecord(path: Path) -> bool:
    """Return whether a file begins like a TFRecord file, which may be compressed with gzip."""
    with path.open("rb") as file:
        head = file.read(12)
    return head[:2] == b"\x1f\x8b" or (len(head) == 12 and head[8:] == masked_crc(head[:8]).to_bytes(4, "little"))


def _records(path: Path) -> Iterator[bytes]:
    for batch in record_batches(path, tfrecord_compression(path), verify=True):
        for begin, length in zip(batch.begin.tolist(), batch.length.tolist(), strict=True):
            yield batch.data[begin : begin + length]


def _prediction_logs(path: Path, signatures: Signatures) -> Iterator[Request]:
    """Yield the Predict requests; logs of other calls, such as Classify and Regress, are skipped."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework import tensor_pb2

    for number, record in enumerate(_records(path)):
        place = f"{path}: record {number}"
        try:
            log = messages()["PredictionLog"].FromString(record)
            if not log.HasField("predict_log"):
                continue
            request = log.predict_log.request
            arrays = {
                key: np.asarray(tf.make_ndarray(tensor_pb2.TensorProto.FromString(value.SerializeToString())))
                for key, value in sorted(request.inputs.items())
            }
        except (DecodeError, ValueError, TypeError) as error:
            raise UnreadableError(f"{place}: {error}, expected a PredictionLog message") from error
        signature = request.model_spec.signature_name or DEFAULT_SIGNATURE
        yield _request(place, signature, arrays, signatures)


# DataType number -> (field of the values, dtype); bfloat16 and half arrive as floats.
_EAS_VALUES = {
    1: ("float_val", "float32"), 2: ("double_val", "float64"), 3: ("int_val", "int32"), 4: ("int_val", "uint8"),
    5: ("int_val", "int16"), 6: ("int_val", "int8"), 7: ("string_val", "object"), 8: ("float_val", "complex64"),
    9: ("int64_val", "int64"), 10: ("bool_val", "bool"), 14: ("float_val", "bfloat16"), 17: ("int_val", "uint16"),
    18: ("double_val", "complex128"), 19: ("float_val", "float16"),
}  # fmt: skip


def _eas(path: Path, signatures: Signatures) -> Iterator[Request]:
    from google.protobuf.message import DecodeError

    try:
        request = messages()["EasRequest"].FromString(path.read_bytes())
        arrays = {key: _eas_array(value) for key, value in sorted(request.inputs.items())}
    except (DecodeError, ValueError, KeyError) as error:
        raise UnreadableError(
            f"{path}: {error}, expected TFRecords of PredictionLog, an EAS PredictRequest or a .npz file"
        ) from error
    if not arrays:
        raise UnreadableError(f"{path}: no input in it, expected TFRecords, an EAS PredictRequest or a .npz file")
    signature = request.signature_name
    if not signature:
        signature = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in signatures else _signature_for(path, arrays, signatures)
    yield _request(str(path), signature, arrays, signatures)


def _eas_array(value: Any) -> Array:
    import tensorflow as tf

    if value.dtype not in _EAS_VALUES:
        raise ValueError(f"dtype number {value.dtype}")
    field, name = _EAS_VALUES[value.dtype]
    values = list(getattr(value, field))
    if name.startswith("complex"):
        values = [complex(real, imaginary) for real, imaginary in zip(values[::2], values[1::2], strict=True)]
    dtype = np.dtype(object) if name == "object" else np.dtype(tf.as_dtype(name).as_numpy_dtype)
    return np.array(values, dtype).reshape(tuple(value.array_shape.dim))


def _npz(path: Path, signatures: Signatures) -> Iterator[Request]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError) as error:
        raise UnreadableError(f"{path}: {error}, expected a .npz file without Python objects") from error
    labels = None
    if LABELS in arrays and not any(LABELS in signature.inputs for signature in signatures.values()):
        labels = np.asarray(arrays.pop(LABELS)).reshape(-1)
    signature = _signature_for(path, arrays, signatures)
    request = _request(str(path), signature, arrays, signatures, labels)
    rows = {array.shape[0] for array in request.inputs.values() if array.ndim}
    if labels is not None and rows and len(labels) not in rows:
        expected = " or ".join(map(str, sorted(rows)))
        raise UnreadableError(f"{path}: {len(labels)} labels, expected {expected}, one for each row")
    yield from _split_rows(request, signatures[signature])


def _split_rows(request: Request, signature: Signature) -> Iterator[Request]:
    """Split many rows into requests of at most `_ROWS` rows, if all inputs have the same number of rows."""
    lengths = {array.shape[0] if array.ndim else -1 for array in request.inputs.values()}
    if request.labels is not None:
        lengths.add(len(request.labels))
    free = all(
        source.shape is None or (source.shape and source.shape[0] is None) for source in signature.inputs.values()
    )
    if len(lengths) != 1 or not free or max(lengths) <= _ROWS:
        yield request
        return
    for begin in range(0, max(lengths), _ROWS):
        rows = slice(begin, begin + _ROWS)
        yield Request(
            request.signature,
            {name: array[rows] for name, array in request.inputs.items()},
            f"{request.origin} from row {begin}",
            None if request.labels is None else request.labels[rows],
        )


def _signature_for(path: Path, names: Iterable[str], signatures: Signatures) -> str:
    """Return the name of the signature that has these inputs."""
    wanted = set(names)
    for name in sorted(signatures, key=lambda name: name != DEFAULT_SIGNATURE):
        meant = _by_any_name(signatures[name], wanted)
        needed = set(signatures[name].inputs) - set(signatures[name].defaults)
        if wanted == set(meant) and needed <= set(meant.values()):
            return name
    have = "; ".join(f"'{name}': {', '.join(signature.inputs)}" for name, signature in signatures.items())
    raise UsageError(
        f"{path}: arrays {', '.join(sorted(wanted)) or 'none'}, expected the inputs of a signature, {have}"
    )


def _by_any_name(signature: Signature, names: Iterable[str]) -> dict[str, str]:
    """Return the input key for each name, which is a key or the name of the input's tensor."""
    tensors = {}
    for key, source in signature.inputs.items():
        tensors[str(source.tensor)] = key
        if source.tensor.port == 0:
            tensors[source.tensor.node] = key
    meant = {name: name if name in signature.inputs else tensors.get(name) for name in names}
    return {name: key for name, key in meant.items() if key is not None}


def _request(
    place: str,
    signature: str,
    arrays: Mapping[str, Array],
    signatures: Signatures,
    labels: Array | None = None,
) -> Request:
    """Return a request whose inputs have the keys and dtypes of the signature."""
    if signature not in signatures:
        have = ", ".join(signatures)
        raise UsageError(f"{place}: a request for the signature '{signature}', expected one of {have}")
    described = signatures[signature]
    keys = _by_any_name(described, arrays)
    strange = sorted(set(arrays) - set(keys))
    if strange:
        have = ", ".join(described.inputs)
        raise UsageError(f"{place}: input '{strange[0]}' is not in signature '{signature}', expected {have}")
    missing = sorted(set(described.inputs) - set(keys.values()) - set(described.defaults))
    if missing:
        raise UsageError(f"{place}: no input '{missing[0]}', expected every input of signature '{signature}'")
    inputs = {
        keys[name]: as_dtype(array, described.inputs[keys[name]].dtype, f"{place}: input '{name}'")
        for name, array in arrays.items()
    }
    for key in described.defaults:
        if key not in inputs:
            value = described.default(key)
            assert value is not None
            inputs[key] = value
    # The outputs that the client requested do not matter: all of them are compared.
    return Request(signature, inputs, place, labels)


def as_dtype(array: Array, dtype: Any, place: str) -> Array:
    """Return an array in the dtype of an input; numbers change only to a dtype that can represent them.

    Raises
    ------
    UsageError
    """
    import tensorflow as tf

    if dtype == tf.string:
        if array.dtype.kind not in "SUO":
            raise UsageError(f"{place}: {array.dtype}, expected strings")
        encode: Callable[[Any], bytes] = lambda text: text.encode() if isinstance(text, str) else bytes(text)  # noqa: E731
        made = np.empty(array.shape, object)
        made.ravel()[:] = [encode(element) for element in array.ravel().tolist()]
        return made
    wanted = np.dtype(dtype.as_numpy_dtype)
    if array.dtype == wanted:
        return array
    if array.dtype.kind in "SUO":
        raise UsageError(f"{place}: strings, expected {dtype.name}")
    cast = array.astype(wanted)
    if wanted.kind in "iub" and not np.array_equal(cast.astype(array.dtype), array):
        raise UsageError(f"{place}: {array.dtype} values that {dtype.name} cannot represent, expected {dtype.name}")
    return cast
