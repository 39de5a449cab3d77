# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from helpers.proxies.proxy_runs import write_model
from serving_proxy.errors import DeniedError, InvalidError, PreconditionError
from serving_proxy.gates.saved_model import Signatures, read_signatures
from serving_proxy.gates.validation import Validated, validate


def run(source: Path, roots: tuple[Path, ...] = (), expected: Signatures | None = None) -> Validated:
    return validate(str(source), roots, expected, lambda: False, lambda done, total: None)


def test_a_good_model_passes(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "1")
    found = run(folder, (tmp_path,), read_signatures(write_model(tmp_path / "2")))
    assert found.path == folder
    assert found.files.bytes > 0


def test_another_signature_is_refused_with_its_names(tmp_path: Path) -> None:
    old = write_model(tmp_path / "1", {"x": 1, "user": 7})
    new = write_model(tmp_path / "2", {"x": 2, "item": 7})
    with pytest.raises(PreconditionError) as refused:
        run(new, (), read_signatures(old))
    said = str(refused.value)
    for part in ("'user' is missing", "'item' is there in addition", "'x' is float64 instead of float32"):
        assert part in said
    assert "--other-signature" in said


def test_a_file_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidError, match="a file, expected the folder of a SavedModel"):
        run(tmp_path / "file")


def test_a_model_outside_the_roots_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeniedError):
        run(write_model(tmp_path / "1"), (tmp_path / "root",))
