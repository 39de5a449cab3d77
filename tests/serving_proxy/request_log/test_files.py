# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from graph_tools.graph import Output
from graph_tools.model import Endpoint, Signature
from graph_tools.readers.tfrecord import masked_crc
from graph_tools.verification.requests import read_requests
from helpers.hosts.request_log_files import framed, prediction_log, write_log
from serving_proxy.errors import NotFoundError
from serving_proxy.request_log.files import MOST_RECORDS, frames, log_files, merge, newest, remove, remove_excess


def _logs(*values: float) -> list[bytes]:
    return [prediction_log("ranking", [value]) for value in values]


def _values(path: Path) -> list[float]:
    """Read a file with TensorFlow, as a warm-up does."""
    found = []
    for record in tf.data.TFRecordDataset([str(path)]).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        found.append(float(tf.make_ndarray(log.predict_log.request.inputs["x"])[0, 0]))
    return found


def test_files_of_all_hosts_are_found_the_oldest_first(tmp_path: Path) -> None:
    second = write_log(tmp_path, "ranking", 2000, _logs(2))
    third = write_log(tmp_path, "ranking", 3000, _logs(3), host="host-1")
    first = write_log(tmp_path, "ranking", 1000, _logs(1), host="host-1")
    write_log(tmp_path, "other", 1, _logs(4))
    (second.parent / "notes.tfrecord").write_bytes(b"")
    found = log_files(tmp_path, "ranking")
    assert [(file.path, file.host, file.began) for file in found] == [
        (first, "host-1", 1000),
        (second, "host-0", 2000),
        (third, "host-1", 3000),
    ]
    assert found[0].bytes == first.stat().st_size


def test_merged_file_is_a_warm_up_file_that_tensorflow_and_verify_read(tmp_path: Path) -> None:
    write_log(tmp_path, "ranking", 1000, _logs(1, 2))
    write_log(tmp_path, "ranking", 2000, _logs(3), host="host-1")
    made = merge(log_files(tmp_path, "ranking"), tmp_path / "warmups")
    assert (made.records, made.bytes, made.damaged) == (3, made.path.stat().st_size, ())
    assert _values(made.path) == [1, 2, 3]
    endpoint = Endpoint(Output("x"), tf.float32, tf.TensorShape([None, 1]))
    asked = read_requests(made.path, {"serving_default": Signature({"x": endpoint}, {})})
    assert [request.inputs["x"].tolist() for request in asked] == [[[1.0]], [[2.0]], [[3.0]]]


def test_the_newest_requests_are_kept(tmp_path: Path) -> None:
    for file in range(3):
        write_log(tmp_path, "ranking", file, _logs(*(float(file * 500 + index) for index in range(500))))
    made = merge(log_files(tmp_path, "ranking"), tmp_path / "warmups")
    assert made.records == MOST_RECORDS
    assert [frame[12:-4] for frame in frames(made.path)] == _logs(*(float(number) for number in range(500, 1500)))


def test_the_same_requests_are_the_same_file(tmp_path: Path) -> None:
    write_log(tmp_path, "ranking", 1000, _logs(1))
    first = merge(log_files(tmp_path, "ranking"), tmp_path / "warmups").path
    assert merge(log_files(tmp_path, "ranking"), tmp_path / "warmups").path == first
    write_log(tmp_path, "ranking", 2000, _logs(2))
    assert merge(log_files(tmp_path, "ranking"), tmp_path / "warmups").path != first


def test_a_file_that_ends_within_a_record_gives_what_is_whole(tmp_path: Path) -> None:
    whole = write_log(tmp_path, "ranking", 1000, _logs(1, 2))
    data = whole.read_bytes()
    for length in range(len(data)):
        whole.write_bytes(data[:length])
        broken: list[Path] = []
        found = list(frames(whole, broken))
        assert len(found) == (length >= len(data) // 2)
        assert broken == ([] if length in {0, len(data) // 2} else [whole])


def test_damaged_bytes_end_a_file(tmp_path: Path) -> None:
    path = write_log(tmp_path, "ranking", 1000, _logs(1, 2, 3))
    data = path.read_bytes()
    dice = random.Random(5)
    for _ in range(100):
        place = dice.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << dice.randrange(8))]) + data[place + 1 :])
        found = list(frames(path))
        assert len(found) == place // (len(data) // 3)
        assert b"".join(found) == data[: len(found) * len(data) // 3]
    path.write_bytes(np.random.default_rng(1).bytes(4096))
    assert list(frames(path)) == []


def test_an_empty_log_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, "ranking", 1000, [])
    with pytest.raises(NotFoundError, match="no request in it"):
        merge(log_files(tmp_path, "ranking"), tmp_path / "warmups")


def test_each_host_keeps_its_newest_files(tmp_path: Path) -> None:
    for began in range(4):
        write_log(tmp_path, "ranking", began, _logs(1))
    write_log(tmp_path, "ranking", 0, _logs(1), host="host-1")
    gone = remove_excess(log_files(tmp_path, "ranking"), 3)
    assert [(file.host, file.began) for file in gone] == [("host-0", 0)]
    assert len(log_files(tmp_path, "ranking")) == 4
    assert len(remove(log_files(tmp_path, "ranking"))) == 4


def test_larger_records_are_left_out_and_not_read(tmp_path: Path) -> None:
    small, size = framed(_logs(1)[0]), 200 << 20
    path = write_log(tmp_path, "ranking", 1000, [])
    header = struct.pack("<Q", size)
    with path.open("wb") as file:
        file.write(small + header + struct.pack("<I", masked_crc(header)))
        # Never read: a hole, and no checksum.
        file.seek(size + 4, os.SEEK_CUR)
        file.write(small)
    broken: list[Path] = []
    assert newest(log_files(tmp_path, "ranking"), 10, 1 << 20, broken) == [small, small]
    assert broken == []
    with path.open("r+b") as file:
        file.truncate(size)
    assert newest(log_files(tmp_path, "ranking"), 10, 1 << 20, broken) == [small]
    assert broken == [path]
