# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from serving_proxy.errors import InvalidError
from serving_proxy.records.models import Policy, PolicyKind
from serving_proxy.sources.models_config import ConfiguredModel, parse_file, parse_reload, parse_text

TEXT = """
model_config_list {
  config {
    name: "ranking" base_path: "/models/ranking" model_platform: "tensorflow"
    model_version_policy { specific { versions: 42 versions: 43 } }
    version_labels { key: "stable" value: 42 } version_labels { key: "canary" value: 43 }
    logging_config { sampling_config { sampling_rate: 0.1 } }
  }
  config: { name: "two", base_path: "/models/two", model_version_policy: { latest: { num_versions: 2 } } }
  config { name: "all" base_path: "/models/all" model_version_policy { all: {} } }
  config { name: "default" base_path: "/models/default" }
}
"""
EXPECTED = (
    ConfiguredModel(
        name="ranking",
        base_path="/models/ranking",
        policy=Policy(kind=PolicyKind.SPECIFIC, versions=(42, 43)),
        labels={"canary": 43, "stable": 42},
    ),
    ConfiguredModel(name="two", base_path="/models/two", policy=Policy(count=2)),
    ConfiguredModel(name="all", base_path="/models/all", policy=Policy(kind=PolicyKind.ALL)),
    ConfiguredModel(name="default", base_path="/models/default"),
)


def test_text_as_users_write_it() -> None:
    assert parse_text(TEXT) == EXPECTED
    assert parse_text("model_config_list {}") == ()


def test_a_configuration_without_models_changes_nothing() -> None:
    """An empty file must not unload all models; an empty request is refused."""
    assert parse_file("# none", "models.config") is None
    for refused in (lambda: parse_text(""), lambda: parse_reload(b"\x0a\x00")):
        with pytest.raises(InvalidError, match="nothing, expected a model_config_list"):
            refused()


@pytest.mark.slow
def test_messages_are_those_of_tensorflow_serving() -> None:
    """The real stubs read the text, write it again, and put it into a request; both mean the same to us."""
    from tensorflow_serving.apis import model_management_pb2
    from tensorflow_serving.config import model_server_config_pb2

    config = text_format.Parse(TEXT, model_server_config_pb2.ModelServerConfig())
    assert parse_text(text_format.MessageToString(config)) == EXPECTED
    request = model_management_pb2.ReloadConfigRequest(config=config, metric_names=["x"])
    assert parse_reload(request.SerializeToString()) == EXPECTED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model_config_list {", "expected a ModelServerConfig"),
        ("model_config_lists {}", "no field named"),
        ("custom_model_config {}", "a custom_model_config, expected a model_config_list"),
        ('model_config_list { config { name: "a" } }', "base_path '', expected an absolute path"),
        ('model_config_list { config { name: "a" base_path: "x" } }', "base_path 'x', expected an absolute path"),
        ('model_config_list { config { base_path: "/x" } }', "model ''"),
        ('model_config_list { config { name: "../a" base_path: "/x" } }', "model '../a'"),
        ('model_config_list { config { name: "a" base_path: "/x" model_platform: "caffe" } }', "platform 'caffe'"),
        (
            'model_config_list { config { name: "a" base_path: "/x" } config { name: "a" base_path: "/y" } }',
            "model 'a' appears twice",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/x" model_version_policy { specific {} } } }',
            r"versions \[\]",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/x" version_labels { key: "a b" value: 1 } } }',
            "label 'a b'",
        ),
    ],
)
def test_invalid_input_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said) as refused:
        parse_text(text, "models.config")
    assert str(refused.value).startswith(("models.config: ", "model '"))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parse_reload(data)
    except InvalidError:
        return


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_text(text)
    except InvalidError:
        return


def entry(name: str, more: str = "", base_path: str = "/models/a") -> str:
    return f'config {{ name: "{name}" base_path: "{base_path}" {more} }}'


def test_an_invalid_model_does_not_affect_others() -> None:
    entries = [
        entry("plain", 'model_platform: "tensorflow"'),
        entry("old", "model_type: TENSORFLOW", "file:///models/old"),
        entry("local", "", "file://localhost/models/local"),
        entry("zero", "model_version_policy { specific { versions: 0 versions: 3 } }"),
        entry("labeled", 'version_labels { key: "canary" value: 0 }'),
        entry("only_zero", "model_version_policy { specific { versions: 0 } }"),
        entry("team/ranking"),
        entry("other", "model_type: OTHER"),
        entry("elsewhere", "", "ftp://bucket/models"),
        entry("stored", "", "s3://bucket/models/"),
        entry("plain"),
    ]
    parsed = parse_file("model_config_list { " + " ".join(entries) + " }", "models.config")
    assert parsed is not None
    found, refused = parsed
    models = {model.name: model for model in found}
    assert set(models) == {"plain", "old", "local", "zero", "labeled", "stored"}
    assert models["stored"].base_path == "s3://bucket/models"
    assert (models["old"].base_path, models["local"].base_path) == ("/models/old", "/models/local")
    assert models["zero"].policy.versions == (3,)
    assert models["labeled"].labels == {}
    assert set(refused) == {"zero", "labeled", "only_zero", "team/ranking", "other", "elsewhere", "plain"}
    assert refused["zero"] == "models.config: model 'zero': version 0 is not served, expected numbers from 1"
    assert "label canary of version 0 is not served" in refused["labeled"]
    assert "has versions [0], expected numbers from 1" in refused["only_zero"]
    assert "model 'team/ranking': expected letters" in refused["team/ranking"]
    assert "has model_type OTHER, expected TENSORFLOW" in refused["other"]
    assert "appears twice" in refused["plain"]


@pytest.mark.parametrize("text", ["custom_model_config { }", "nonsense", "model_config_list {"])
def test_invalid_configurations_are_refused_as_a_whole(text: str) -> None:
    with pytest.raises(InvalidError):
        parse_file(text, "models.config")
