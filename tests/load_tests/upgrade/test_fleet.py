# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from load_tests._releases import TODAY, Release
from load_tests.upgrade.fleet import begin_options
from serving_proxy.serve import options


def test_proxies_begin_a_store_with_the_options_that_their_release_knows(tmp_path: Path) -> None:
    assert begin_options(TODAY) == ("--new-store",)
    older = tmp_path / "serving_proxy" / "serve" / "options.py"
    older.parent.mkdir(parents=True)
    text = Path(options.__file__).read_text(encoding="utf-8")
    older.write_text(text.replace("new_store", "another"), encoding="utf-8")
    assert begin_options(Release("older", tmp_path)) == ()
