# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from graph_tools.store.compaction import compact
from graph_tools.store.timeline import TimelineReader, segment_name
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.store.truncation import truncate
from helpers.models.live_models import START, publish
from helpers.proxies.artifact_stores import Bucket
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.timelines import TimelineCopy, TimelineUpload, copied_timeline, timeline_folder
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.errors import InvalidError, NotFoundError, UnavailableError


@pytest.fixture
def writer(tmp_path: Path) -> TimelineWriter:
    return TimelineWriter(tmp_path / "timeline", START, "a test")


@pytest.fixture
def url(bucket: Bucket, tmp_path: Path) -> StoreUrl:
    return parse_url(f"{bucket.url}/deltas/{tmp_path.name}", "url")


@pytest.fixture
def upload(writer: TimelineWriter, url: StoreUrl) -> TimelineUpload:
    return TimelineUpload(writer.folder, url)


@pytest.fixture
def copy(url: StoreUrl, tmp_path: Path) -> TimelineCopy:
    return TimelineCopy(timeline_folder(tmp_path / "copies", url), url)


def segments(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*.delta")}


def both(upload: TimelineUpload, copy: TimelineCopy) -> tuple[int, int]:
    return upload.step(), copy.step()


def test_new_segments_are_copied(writer: TimelineWriter, upload: TimelineUpload, copy: TimelineCopy) -> None:
    assert both(upload, copy) == (0, 0)
    for count in (1, 2):
        for _ in range(count):
            publish(writer)
        assert both(upload, copy) == (count, count)
        assert segments(copy.folder) == segments(writer.folder)
    assert [segment.header.last_epoch for segment in TimelineReader(copy.folder, START)] == [1, 2, 3]
    # After a restart, nothing is copied again.
    again = copied_timeline(copy.folder.parent, copy.folder)
    assert again is not None
    assert both(TimelineUpload(writer.folder, upload.url), again) == (0, 0)
    assert copied_timeline(copy.folder.parent, writer.folder) is None


def test_compaction_and_truncation(writer: TimelineWriter, upload: TimelineUpload, copy: TimelineCopy) -> None:
    for _ in range(4):
        publish(writer)
    both(upload, copy)
    compact(writer.folder, 1, 3)
    assert both(upload, copy) == (1, 1)
    assert segments(copy.folder).keys() == {segment_name(1, 3), segment_name(4, 4)}
    before = segments(copy.folder)
    # Another history under the same name.
    truncate(writer.folder, 3)
    another = TimelineWriter(writer.folder, START, "another")
    another.resume()
    publish(another, 44.0)
    assert both(upload, copy) == (1, 1)
    assert segments(copy.folder) == segments(writer.folder)
    assert segments(copy.folder)[segment_name(4, 4)] != before[segment_name(4, 4)]


def test_damaged_segment(writer: TimelineWriter, upload: TimelineUpload, copy: TimelineCopy, url: StoreUrl) -> None:
    publish(writer)
    both(upload, copy)
    publish(writer)
    upload.step()
    name = segment_name(2, 2)
    data = bytearray((writer.folder / name).read_bytes())
    data[300] ^= 1
    open_store(url).put(url / name, bytes(data))
    with pytest.raises(InvalidError, match=rf"{url}/{name}: damaged, expected a segment"):
        copy.step()
    assert segments(copy.folder).keys() == {segment_name(1, 1)}
    open_store(url).put(url / name, writer.folder / name)
    assert copy.step() == 1
    (writer.folder / segment_name(3, 3)).write_bytes(bytes(data))
    with pytest.raises(InvalidError, match="damaged"):
        upload.step()


def test_store_that_fails(
    writer: TimelineWriter, upload: TimelineUpload, copy: TimelineCopy, url: StoreUrl, bucket: Bucket
) -> None:
    publish(writer)
    both(upload, copy)
    bucket.connection.limit = 0
    for act in (upload.step, copy.step):
        with pytest.raises(UnavailableError, match=str(url)):
            act()
    bucket.connection.limit = None
    open_store(url).delete(url / segment_name(1, 1))
    with pytest.raises(NotFoundError, match="no segments any more"):
        copy.step()
    assert segments(copy.folder) == segments(writer.folder)
    with pytest.raises(NotFoundError, match="expected the folder of a timeline"):
        TimelineUpload(writer.folder / "missing", url).step()
