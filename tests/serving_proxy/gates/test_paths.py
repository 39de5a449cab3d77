# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from helpers.proxies.proxy_runs import write_model
from serving_proxy.errors import DeniedError, InvalidError, NotFoundError
from serving_proxy.gates.paths import check_tree, check_writable, resolved


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, ...]:
    write_model(tmp_path / "root" / "3")
    write_model(tmp_path / "rooted" / "4")
    return (tmp_path / "root",)


def test_paths_below_a_root_are_permitted(roots: tuple[Path, ...]) -> None:
    root = roots[0]
    (root / "current").symlink_to("3")
    assert resolved(root / "3", roots) == root / "3"
    assert resolved(root / "current", roots) == root / "3"
    assert resolved(root / "3" / ".." / "3", roots) == root / "3"


def test_without_roots_every_path_is_permitted(tmp_path: Path) -> None:
    assert resolved(tmp_path, ()) == tmp_path.resolve()


@pytest.mark.parametrize("path", ["rooted/4", "root/../rooted/4", "root/escape", "root/3/deep/escape", "."])
def test_paths_that_lead_out_of_a_root_are_refused(tmp_path: Path, roots: tuple[Path, ...], path: str) -> None:
    (tmp_path / "root" / "escape").symlink_to(tmp_path / "rooted" / "4")
    (tmp_path / "root" / "3" / "deep").mkdir()
    (tmp_path / "root" / "3" / "deep" / "escape").symlink_to("/etc")
    with pytest.raises(
        DeniedError, match=r"model .*: outside of the permitted folders, expected a path below --model-root"
    ):
        resolved(tmp_path / path, roots)


@pytest.mark.parametrize("path", ["relative/3", "", "/with\0zero"])
def test_invalid_paths_are_refused(path: str, roots: tuple[Path, ...]) -> None:
    with pytest.raises(InvalidError, match="expected an absolute path"):
        resolved(path, roots)


def test_missing_paths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(NotFoundError, match="not there"):
        resolved(tmp_path / "gone", ())
    with pytest.raises(InvalidError):
        resolved(tmp_path / "loop", ())
    with pytest.raises(InvalidError):
        resolved("/" + "x" * 5000, ())


def test_refusals_do_not_reveal_whether_outside_paths_exist(tmp_path: Path, roots: tuple[Path, ...]) -> None:
    (tmp_path / "rooted" / "loop").symlink_to("loop")
    (tmp_path / "rooted" / "away").symlink_to("/proc/self/mounts")
    said = set()
    for name in ("4", "gone", "4/saved_model.pb", "4/saved_model.pb/x", "loop", "away", "x" * 300):
        outside = tmp_path / "rooted" / name
        link = tmp_path / "root" / "link"
        link.symlink_to(outside)
        for path in (outside, link):
            with pytest.raises(DeniedError) as refused:
                resolved(path, roots)
            said.add(str(refused.value).replace(str(path), "PATH"))
        (tmp_path / "root" / "3" / "link").symlink_to(outside)
        with pytest.raises(DeniedError) as refused:
            check_tree(tmp_path / "root" / "3", roots)
        (tmp_path / "root" / "3" / "link").unlink()
        link.unlink()
    assert len(said) == 1


def test_links_inside_a_model_are_followed(tmp_path: Path, roots: tuple[Path, ...]) -> None:
    model = tmp_path / "root" / "3"
    (model / "assets").symlink_to(tmp_path / "root")
    (model / "assets").unlink()
    (model / "table").symlink_to(model / "saved_model.pb")
    check_tree(model, roots)
    (model / "secret").symlink_to("/etc/hostname")
    with pytest.raises(DeniedError, match=r"file .*secret: outside of"):
        check_tree(model, roots)
    check_tree(model, ())
    (model / "secret").unlink()
    (model / "nowhere").symlink_to("gone")
    with pytest.raises(InvalidError, match="a broken link"):
        check_tree(model, roots)


def test_a_linked_folder_inside_a_model_does_not_escape(tmp_path: Path, roots: tuple[Path, ...]) -> None:
    model = tmp_path / "root" / "3"
    (model / "variables").symlink_to(tmp_path / "rooted" / "4")
    with pytest.raises(DeniedError):
        check_tree(model, roots)


def test_a_place_to_write_to_lies_below_a_root_and_need_not_be_there(tmp_path: Path, roots: tuple[Path, ...]) -> None:
    check_writable(str(roots[0] / "new" / "folder"), roots, "timeline_path")
    check_writable("/anywhere", (), "timeline_path")
    (roots[0] / "away").symlink_to(tmp_path)
    for path in ("/etc", str(roots[0] / "away" / "new"), str(roots[0] / ".." / "new")):
        with pytest.raises(DeniedError, match=r"timeline_path .*: outside of the permitted folders"):
            check_writable(path, roots, "timeline_path")
    with pytest.raises(InvalidError, match="expected an absolute path"):
        check_writable("relative", roots, "timeline_path")
