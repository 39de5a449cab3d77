# SPDX-License-Identifier: Apache-2.0
"""Serve TensorFlow SavedModels of recommendation models in this process, through libprocessor.so.

    with processor.Model("models/ranking/7", {"session_num": 2}) as model:
        scores = model.run({"user": [b"17"], "item": [b"42"]})["prob"]

The library is opened on first use, not by this import.
"""

from importlib.metadata import PackageNotFoundError, version

from processor._answer import Answer
from processor._lib import library_path, load_library
from processor.desired import DesiredFault, check_desired
from processor.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ProcessorError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from processor.host import Host
from processor.model import Model
from processor.request_bytes import RequestBytes, max_request_bytes, set_max_request_bytes
from processor.signature import Signature, TensorSpec

try:
    __version__ = version("recprocessor")
except PackageNotFoundError:  # a checkout on sys.path
    __version__ = "0+unknown"

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "Answer",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "DesiredFault",
    "FailedPreconditionError",
    "Host",
    "InternalError",
    "InvalidArgumentError",
    "Model",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ProcessorError",
    "RequestBytes",
    "ResourceExhaustedError",
    "Signature",
    "TensorSpec",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "__version__",
    "check_desired",
    "library_path",
    "load_library",
    "max_request_bytes",
    "set_max_request_bytes",
]
