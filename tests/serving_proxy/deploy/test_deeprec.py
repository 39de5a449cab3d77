# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from serving_proxy.deploy.deeprec import is_deeprec_config, parse_deeprec
from serving_proxy.errors import InvalidError

TEXT = """
{
  "model_entry": "", "processor_path": "/libserving_processor.so", "processor_type": "cpp",
  "model_store_type": "local", "savedmodel_dir": "/models/ctr/1", "checkpoint_dir": "/models/ctr/checkpoints",
  "feature_store_type": "memory", "serialize_protocol": "protobuf", "signature_name": "serving_default",
  "session_num": 2, "select_session_policy": "MOD", "cpusets": "0;1", "warmup_file_name": "warmup.bin"
}
"""


def test_the_keys_of_a_session_are_left_as_they_are() -> None:
    found = parse_deeprec(TEXT, "config.json")
    assert (found.folder, found.folders) == ("/models/ctr/1", ("/models/ctr/checkpoints",))
    assert (found.settings.cpuset, found.settings.warmup_file) == ("0;1", "warmup.bin")
    assert found.settings.config["session_num"] == 2
    assert found.settings.config["checkpoint_dir"] == "/models/ctr/checkpoints"
    # Hosts refuse these inside `config`: the version says them by keys of its own.
    own = {"savedmodel_dir", "model_name", "model_version", "warmup_file_name", "cpusets"}
    assert not own & set(found.settings.config)


def test_name_and_version_are_taken_where_they_are_given() -> None:
    found = parse_deeprec('{"savedmodel_dir": "/m", "model_name": "ctr", "model_version": 7}', "c")
    assert (found.name, found.version) == ("ctr", 7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected the JSON of a DeepRec Processor"),
        ("[]", "c: a JSON list, expected an object"),
        ("{}", "c: no savedmodel_dir"),
        ('{"savedmodel_dir": 3}', "c: savedmodel_dir 3, expected a string"),
        ('{"savedmodel_dir": "/m", "model_version": "x"}', "c: model_version 'x'"),
        ('{"savedmodel_dir": "/m", "cpusets": 4}', "c: cpusets 4"),
    ],
)
def test_invalid_input_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        parse_deeprec(text, "c")


def test_deeprec_json_is_distinguished_from_a_models_config() -> None:
    assert is_deeprec_config(TEXT)
    assert not is_deeprec_config("model_config_list {}")
