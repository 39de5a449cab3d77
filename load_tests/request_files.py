# SPDX-License-Identifier: Apache-2.0
"""Create files of serialized requests for the reference workloads: valid, random, the same on every machine.

    python -m load_tests.request_files --workload W1 --rows 16 --protocol tfserving requests.bin

A file contains, for each request, a 4-byte little-endian length and then its bytes. The messages are encoded by hand,
so that generating them needs no generated code; the tests read them back with protobuf.
"""

import argparse
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "Protocol",
    "encode_request",
    "ensure_requests",
    "name_model",
    "random_inputs",
    "read_requests",
    "write_requests",
]

Protocol = Literal["eas", "tfserving"]
Array = npt.NDArray[Any]

# Values of tensorflow.DataType, which both protocols use.
_DTYPES = {"f": 1, "d": 2, "i": 3, "O": 7, "S": 7, "q": 9, "l": 9, "?": 10}


def random_inputs(workload: str, rows: int, rng: np.random.Generator) -> dict[str, Array]:
    """Generate the inputs of one request.

    Parameters
    ----------
    workload : str
        "W1", "W2" or "tiny".
    rows : int
        Size of the batch.
    rng : numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    inputs : dict
        By alias: numeric features float32, standard normal; categories as ids [rows] int64 or strings [rows] bytes.
    """
    if workload == "W1":
        inputs: dict[str, Array] = {f"I{i + 1}": rng.standard_normal(rows, dtype=np.float32) for i in range(13)}
        inputs |= {f"C{i + 1}": _categories(rows, rng) for i in range(26)}
        return inputs
    if workload == "W2":
        inputs = {"dense": rng.standard_normal((rows, 13), dtype=np.float32)}
        inputs |= {f"C{i + 1}": rng.integers(0, 100_000, rows, dtype=np.int64) for i in range(26)}
        return inputs
    if workload == "tiny":
        return {"dense": rng.standard_normal((rows, 4), dtype=np.float32), "C1": _categories(rows, rng)}
    raise ValueError(f"workload: {workload!r}, expected W1, W2 or tiny")


def _categories(rows: int, rng: np.random.Generator) -> Array:
    """Return eight hexadecimal digits each, as in the Criteo logs."""
    return np.array([b"%08x" % value for value in rng.integers(0, 2**32, rows)], dtype=object)


def encode_request(inputs: Mapping[str, Array], protocol: Protocol, signature: str = "serving_default") -> bytes:
    """Serialize a request that asks for all outputs.

    Parameters
    ----------
    inputs : mapping
        By alias: arrays of float32, float64, int32, int64, bool, or bytes (dtype object or S).
    protocol : str
        "eas": `tensorflow.eas.PredictRequest`; "tfserving": `tensorflow.serving.PredictRequest`.
    signature : str
        Name of the signature, written into the request.

    Returns
    -------
    request : bytes
    """
    tensor = {"eas": _array_proto, "tfserving": _tensor_proto}[protocol]
    name = signature.encode()
    message = _field(1, name if protocol == "eas" else _field(3, name))
    for alias, array in inputs.items():
        message += _field(2, _field(1, alias.encode()) + _field(2, tensor(array)))
    return message


def name_model(request: bytes, model: str, version: int | None = None) -> bytes:
    """Add the model's name and optionally the version to a `tensorflow.serving.PredictRequest` of `encode_request`."""
    end = 2 + request[1]  # the name of a signature is short
    # A google.protobuf.Int64Value.
    number = b"" if version is None else _field(2, _varint(1 << 3) + _varint(version))
    return _field(1, _field(1, model.encode()) + number + request[2:end]) + request[end:]


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # a negative int64 needs ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _dtype(array: Array) -> int:
    if array.dtype.char not in _DTYPES:
        raise ValueError(f"dtype: {array.dtype}, expected float32, float64, int32, int64, bool or bytes")
    return _DTYPES[array.dtype.char]


def _array_proto(array: Array) -> bytes:
    """Return a `tensorflow.eas.ArrayProto`: typed, packed values."""
    dtype = _dtype(array)
    message = _varint(1 << 3) + _varint(dtype)
    message += _field(2, _field(1, b"".join(map(_varint, array.shape))) if array.ndim else b"")
    if dtype == 7:
        return message + b"".join(_field(6, bytes(value)) for value in array.ravel())
    number = {1: 3, 2: 4, 3: 5, 9: 7, 10: 8}[dtype]
    if dtype in (1, 2):
        return message + _field(number, np.ascontiguousarray(array).tobytes())
    return message + _field(number, b"".join(_varint(int(value)) for value in array.ravel()))


def _tensor_proto(array: Array) -> bytes:
    """Return a `tensorflow.TensorProto`: numbers as `tensor_content`, as TensorFlow's own clients send them."""
    dtype = _dtype(array)
    shape = b"".join(_field(2, _varint(1 << 3) + _varint(size)) for size in array.shape)
    message = _varint(1 << 3) + _varint(dtype) + _field(2, shape)
    if dtype == 7:
        return message + b"".join(_field(8, bytes(value)) for value in array.ravel())
    return message + _field(4, np.ascontiguousarray(array).tobytes())


def write_requests(path: Path, requests: Iterable[bytes]) -> None:
    """Write a file of requests.

    Parameters
    ----------
    path : Path
        The file; its folder is created if necessary.
    requests : iterable of bytes
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    with scratch.open("wb") as file:
        for request in requests:
            file.write(struct.pack("<I", len(request)) + request)
    scratch.rename(path)


def read_requests(path: Path) -> list[bytes]:
    """Read a file of requests.

    Parameters
    ----------
    path : Path

    Returns
    -------
    requests : list of bytes

    Raises
    ------
    ValueError
        If the file is truncated.
    """
    data = path.read_bytes()
    requests = []
    offset = 0
    while offset < len(data):
        if offset + 4 > len(data):
            raise ValueError(f"{path}: truncated")
        (size,) = struct.unpack_from("<I", data, offset)
        offset += 4
        if offset + size > len(data):
            raise ValueError(f"{path}: truncated")
        requests.append(data[offset : offset + size])
        offset += size
    return requests


def random_requests(workload: str, rows: int, protocol: Protocol, count: int) -> Iterator[bytes]:
    """Generate requests; the same ones for the same arguments.

    Parameters
    ----------
    workload : str
        "W1", "W2" or "tiny".
    rows : int
        Size of every batch.
    protocol : str
        "eas" or "tfserving"; both carry the same values.
    count : int
        Number of requests.

    Yields
    ------
    request : bytes
    """
    rng = np.random.default_rng([rows, *workload.encode()])
    for _ in range(count):
        yield encode_request(random_inputs(workload, rows, rng), protocol)


def default_count(rows: int) -> int:
    """Return the number of distinct requests in a file, large enough that their rows do not all stay cached."""
    return max(16, 1024 // rows)


def ensure_requests(folder: Path, workload: str, rows: int, protocol: Protocol) -> Path:
    """Return a file of requests; write it if it is missing.

    Parameters
    ----------
    folder : Path
        Folder for the files.
    workload : str
        "W1", "W2" or "tiny".
    rows : int
        Size of every batch.
    protocol : str
        "eas" or "tfserving".

    Returns
    -------
    path : Path
    """
    path = folder / f"{workload}-{rows}-{protocol}.bin"
    if not path.exists():
        write_requests(path, random_requests(workload, rows, protocol, default_count(rows)))
    return path


def main() -> None:
    """Write one file according to the command line."""
    parser = argparse.ArgumentParser(description="Write a file of random, valid, serialized requests.")
    parser.add_argument("path", type=Path, help="file to write")
    parser.add_argument("--workload", choices=["W1", "W2", "tiny"], required=True, help="workload")
    parser.add_argument("--rows", type=int, default=1, help="number of rows of a request")
    parser.add_argument("--protocol", choices=["eas", "tfserving"], default="eas", help="protocol")
    parser.add_argument("--count", type=int, help="number of distinct requests")
    arguments = parser.parse_args()
    count = arguments.count or default_count(arguments.rows)
    write_requests(arguments.path, random_requests(arguments.workload, arguments.rows, arguments.protocol, count))


if __name__ == "__main__":
    main()
