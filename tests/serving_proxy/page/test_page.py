# SPDX-License-Identifier: Apache-2.0
"""The page in a headless Chromium that reaches no other machine, in front of a real control plane."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.proxies.host_statistics import counting
from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from helpers.system.browser import Visit
from load_tests.ports import free_port
from serving_proxy.cores import allocator
from serving_proxy.system.cpus import read_cpus
from serving_proxy.version import version

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Make = Callable[..., Visit]
STREAM_QUERY = "topics=events&topics=status&topics=watch"


def test_the_page_shows_versions_and_charts(visit: Make, proxy: ProxyThread) -> None:
    with counting(proxy.state_dir), visit() as seen:
        page = seen.live().page
        rows = page.locator("table.versions tbody tr")
        assert [text.split()[0] for text in rows.all_inner_texts()] == ["3", "4", "5", "6"]
        assert f"version {version()}, generation" in page.locator("#top").inner_text()
        assert page.get_by_role("img", name="Traffic: version 3 90 %, version 4 10 %").count() == 1
        page.locator("svg.spark").nth(3).wait_for()
        page.locator("#experiments td", has_text="0.9700").wait_for()
        page.locator("#machine .chip", has_text="ranking/4").first.wait_for()
        page.locator("tr", has_text="within limits").first.wait_for()
        # A reload shows the lines at once: the server has kept them.
        points = len(page.locator("svg.spark .rate").first.get_attribute("d") or "")
        page.reload()
        page.locator("svg.spark").first.wait_for()
        assert len(page.locator("svg.spark .rate").first.get_attribute("d") or "") >= points
        seen.picture("wide")
        assert seen.complaints == []
        assert {re.match(r"http://[^/]+", url)[0] for url in seen.asked} == {proxy.url}  # type: ignore[index]


def test_versions_that_follow_a_timeline_show_epoch_age_and_refusals(visit: Make, proxy: ProxyThread) -> None:
    with counting(proxy.state_dir), visit() as seen:
        page = seen.live().page
        state = page.locator("table.versions tbody tr").first.locator("td[data-label=State]")
        state.locator(".facts", has_text=re.compile("[1-9][0-9]* rows/s")).wait_for()
        assert re.fullmatch(r"epoch \d+, 2 min old held", state.locator(".epoch").inner_text())
        assert state.locator(".facts").inner_text().endswith(" rows/s, 8.4 MB of changed rows")
        state.locator("summary", has_text="1 refused").click()
        state.get_by_text("9.delta: <b>damaged</b>").wait_for()
        assert page.locator("table.versions .epoch").count() == 1
        state.get_by_role("button", name="Let ranking/3 follow again").click()
        assert re.search(r"It leaves epoch \d+ for the newest one", page.get_by_role("dialog").inner_text())
        page.get_by_role("button", name="Follow", exact=True).last.click()
        page.get_by_role("dialog").get_by_text("ranking/3: follows no timeline").wait_for()
        # The browser itself writes a line for an answer that is an error.
        assert len(seen.complaints) == 1


def test_charts_have_figures_units_and_a_legend(visit: Make, proxy: ProxyThread) -> None:
    with counting(proxy.state_dir), visit() as seen:
        page = seen.live().page
        row = page.locator("table.versions tbody tr").first
        cell = row.locator("td[data-label=Latency]")
        cell.locator("b", has_text="20 ms").wait_for()
        assert re.fullmatch(r"p50 [\d.]+\s+p99 [\d.]+ ms\s+SLO 20 ms", cell.locator(".now").inner_text())
        top, half, zero = cell.locator(".scale span").all_inner_texts()
        assert (top.removesuffix(" ms"), zero) == (str(int(2 * float(half))), "0")
        assert cell.locator(".times span").all_inner_texts()[1] == "now"
        assert cell.get_by_role("img", name=re.compile("p50 and p99, last .*, now .* ms, scale to .* ms")).count() == 1
        assert row.locator("td[data-label='Requests/s'] .scale span").first.inner_text().endswith("/s")
        # One request that took long does not flatten what the others took; a limit far above is left out.
        scale = "async (found) => (await import('/page/charts.js')).scaleFor(...found)"
        assert page.evaluate(scale, [[*[5.0] * 99, 900.0]]) == 20
        assert page.evaluate(scale, [[5.0] * 99, 9.0]) == 10
        assert page.evaluate(scale, [[5.0] * 99, 90.0]) == 5
        assert page.evaluate(scale, [[]]) == 1


def test_versions_without_traffic_are_folded(visit: Make, proxy: ProxyThread, tmp_path: Path) -> None:
    with visit() as seen, proxy.client() as client:
        for number in (1, 2, 3):
            client.deploy("idle", write_model(tmp_path / str(number)), wait=True)
        model = seen.live().page.locator("article", has=seen.page.locator("#model-idle"))
        fold = model.get_by_role("button", name="2 versions without traffic of idle")
        assert fold.inner_text().endswith("2 versions without traffic: 2 ready, 3 ready")
        rows = model.locator("tbody tr")
        assert rows.count() == 1
        fold.click()
        rows.nth(2).wait_for()
        client.traffic("idle", {3: 10})
        model.get_by_role("button", name="1 version without traffic of idle").click()
        rows.nth(2).wait_for(state="detached")
        assert [text.split()[0] for text in rows.all_inner_texts()] == ["1", "3"]
        client.undeploy("idle")
        assert seen.complaints == []


def test_with_many_models_only_cards_with_a_problem_are_open(chrome: Browser, tmp_path: Path) -> None:
    with ProxyThread(tmp_path / "proxy", "--admin-auth", "none") as proxy, proxy.client() as client:
        for number in range(12):
            client.deploy(f"model_{number}", write_model(tmp_path / str(number)), version=1, wait=True)
        bad = write_model(tmp_path / "bad")
        (bad / "refuse").write_text("no", encoding="utf-8")
        client.deploy("model_7", bad, version=2)
        for scheme, width in (("light", 1280), ("dark", 360)):
            options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
            with Visit(chrome, proxy.url, **options) as seen:
                page = seen.live().page
                page.locator("#model-model_7 + .badge", has_text="2 failed").wait_for()
                cards = page.locator("article.model")
                assert cards.count() == 12
                assert [card.locator("h3").inner_text() for card in page.locator(".model:not(.folded)").all()] == [
                    "model_7"
                ]
                assert seen.overflow() <= 0
                seen.picture(f"many-{scheme}")
                page.get_by_role("button", name="model_3", exact=True).click()
                page.get_by_role("button", name="Pause experiments of model_3").wait_for()
                page.get_by_label("Find a model").fill("MODEL_1")
                page.get_by_text("3 of 12 models").wait_for()
                assert cards.locator("h3").all_inner_texts() == ["model_1", "model_10", "model_11"]
                assert seen.complaints == []


def test_names_and_messages_are_never_markup(visit: Make) -> None:
    with visit() as seen:
        page = seen.live().page
        page.locator("p.reason", has_text="<script>document.title = 'XSS'</script><b>bold</b>").wait_for()
        page.get_by_label("Details of version 6").click()
        page.get_by_text("<img src=x onerror=document.title='XSS'>").first.wait_for()
        assert page.locator("b:has-text('bold'), main img, main script").count() == 0
        assert page.title() == "(1) serving-proxy"
        assert seen.complaints == []


def test_states_change_without_a_reload(visit: Make, proxy: ProxyThread, tmp_path: Path) -> None:
    with visit() as seen, proxy.client() as client:
        page = seen.live().page
        slow = write_model(tmp_path / "slow")
        (slow / "slow").touch()
        client.deploy("changing", slow)
        page.locator("#model-changing").wait_for()
        page.locator("#jobs li", has_text="deploy changing/1").wait_for()
        (slow / "slow").unlink()
        page.locator("article", has=page.locator("#model-changing")).locator(".state.ready").wait_for()
        page.locator("#jobs").wait_for(state="hidden")
        page.locator("#events", has_text="changing/1: ready").wait_for()
        client.undeploy("changing")
        page.locator("#model-changing").wait_for(state="detached")
        assert seen.complaints == []


def test_buttons_promote_pause_ramp_and_roll_back(visit: Make, proxy: ProxyThread, tmp_path: Path) -> None:
    with visit() as seen, proxy.client() as client:
        for number in (1, 2):
            client.deploy("buttons", write_model(tmp_path / str(number)), wait=True)

        def model() -> dict[str, object]:
            return client.versions("buttons")

        page = seen.live().page
        page.get_by_role("button", name="1 version without traffic of buttons").click()
        page.get_by_role("button", name="Ramp buttons/2").click()
        page.get_by_label("Share at the end, in percent").fill("101")
        page.get_by_role("button", name="Ramp", exact=True).click()
        page.get_by_text("Share: '101', expected 0 to 100").wait_for()
        page.get_by_label("Share at the end, in percent").fill("25")
        page.get_by_label("Within").fill("0")
        seen.picture("ramp")
        page.get_by_role("button", name="Ramp", exact=True).click()
        page.get_by_role("img", name="Traffic: version 1 75 %, version 2 25 %").wait_for()

        page.get_by_role("button", name="Pause experiments of buttons").click()
        page.get_by_role("button", name="Pause", exact=True).last.click()
        page.get_by_role("button", name="Resume experiments of buttons").click()
        assert model()["paused"]
        page.get_by_role("button", name="Resume", exact=True).last.click()
        page.get_by_role("button", name="Pause experiments of buttons").wait_for()

        page.get_by_role("button", name="Promote buttons/2").click()
        assert "1 stays loaded" in page.get_by_role("dialog").inner_text()
        page.get_by_role("button", name="Cancel").click()
        assert model()["baseline"] == 1
        page.get_by_role("button", name="Promote buttons/2").click()
        page.get_by_role("button", name="Promote", exact=True).last.click()
        page.get_by_role("img", name="Traffic: version 2 100 %").wait_for()
        assert model()["baseline"] == 2

        page.get_by_role("button", name="Roll back buttons").click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        page.get_by_role("img", name="Traffic: version 1 100 %").wait_for()
        assert model()["baseline"] == 1
        assert page.get_by_role("button", name="Roll back buttons").is_disabled()
        client.undeploy("buttons")
        assert seen.complaints == []


def test_a_refusal_is_shown_where_the_question_was(visit: Make, proxy: ProxyThread, tmp_path: Path) -> None:
    with visit() as seen, proxy.client() as client:
        for number in (1, 2):
            client.deploy("refused", write_model(tmp_path / str(number)), wait=True)
        page = seen.live().page
        page.get_by_role("button", name="1 version without traffic of refused").click()
        page.get_by_role("button", name="Promote refused/2").click()
        client.undeploy("refused", 2)
        wait_for(lambda: all(version["state"] == "stopped" for version in client.versions("refused")["versions"][1:]))
        page.get_by_role("button", name="Promote", exact=True).last.click()
        page.get_by_role("dialog").get_by_text("expected a version that is deployed").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        client.undeploy("refused")
        # The browser itself writes a line for an answer that is an error.
        assert all("400 (Bad Request)" in complaint for complaint in seen.complaints)


def test_everything_can_be_done_with_the_keyboard(visit: Make, proxy: ProxyThread, tmp_path: Path) -> None:
    with visit() as seen, proxy.client() as client:
        for number in (1, 2):
            client.deploy("keys", write_model(tmp_path / str(number)), wait=True)
        page = seen.live().page
        page.locator("#model-keys").wait_for()
        # The button that cancels a deployment takes the focus with it when the deployment ends.
        page.locator("#jobs-heading").wait_for(state="hidden")

        def focused() -> str:
            found: str = page.evaluate(
                "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
            )
            return found

        page.keyboard.press("Tab")
        assert focused() == "Skip to the models"
        page.keyboard.press("Enter")
        reached: list[str] = []

        def tab_to(name: str, *, back: bool = False) -> None:
            while name not in reached:
                page.keyboard.press("Shift+Tab" if back else "Tab")
                reached.append(focused())
                assert len(reached) < 40, reached
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline == "solid", focused()

        tab_to("1 version without traffic of keys")
        assert "Pause experiments of keys" in reached
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Promote keys/2").wait_for()
        tab_to("Promote keys/2", back=True)
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        # The focus is where it was, though the page was drawn anew meanwhile.
        wait_for(lambda: focused() == "Promote keys/2")
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        while focused() != "Promote":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_role("img", name="Traffic: version 2 100 %").wait_for()
        client.undeploy("keys")
        assert seen.complaints == []


@pytest.mark.parametrize("width", [360, 800])
def test_a_narrow_screen_needs_no_scrolling_aside(visit: Make, proxy: ProxyThread, width: int) -> None:
    with counting(proxy.state_dir), visit(width, 740) as seen:
        page = seen.live().page
        page.locator("svg.spark").first.wait_for()
        assert seen.overflow() <= 0
        page.get_by_role("button", name="Ramp ranking/4").click()
        assert seen.overflow() <= 0
        page.keyboard.press("Escape")
        seen.picture(f"narrow-{width}")
        assert seen.complaints == []


def test_colors_and_motion_follow_the_system(visit: Make) -> None:
    def back(**options: str) -> tuple[str, str]:
        with visit(**options) as seen:
            seen.live().page.locator(".share").first.wait_for()
            seen.picture(f"{options.get('color_scheme', 'light')}")
            assert seen.complaints == []
            found = "getComputedStyle(document.querySelector('.share')).transitionDuration"
            return seen.page.evaluate("getComputedStyle(document.body).backgroundColor"), seen.page.evaluate(found)

    assert back() == ("rgb(246, 247, 249)", "0.4s")
    assert back(color_scheme="dark", reduced_motion="reduce") == ("rgb(18, 21, 26)", "0s")


def test_a_login_lasts_over_a_restart_and_until_the_logout(chrome: Browser, tmp_path: Path) -> None:
    port = str(free_port())
    with ProxyThread(tmp_path / "proxy", "--admin-port", port) as proxy:
        url, token = proxy.url, (proxy.state_dir / "admin.token").read_text(encoding="ascii").strip()
        seen = Visit(chrome, url).__enter__()
        page = seen.page
        page.get_by_role("dialog").wait_for()
        assert "generation" not in page.inner_text("body")
        page.get_by_label("Token", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("That is not the token of this proxy.").wait_for()
        seen.picture("token")
        page.get_by_label("Token", exact=True).fill(token)
        page.keyboard.press("Enter")
        seen.live()
        page.get_by_text("serving-proxy deploy NAME").wait_for()
        seen.picture("empty")
        page.reload()
        seen.live()
        assert page.get_by_role("dialog").count() == 0
        # The token is nowhere in the browser, and what is there no script of another page can use.
        kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert token not in kept
        assert page.evaluate("document.cookie") == ""
        (cookie,) = seen.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert token not in "".join(seen.asked)
        assert {path.partition("?")[2] for path in seen.asked} <= {"", "limit=200", STREAM_QUERY}
    with ProxyThread(tmp_path / "proxy", "--admin-port", port):
        seen.live()
        assert page.get_by_role("dialog").count() == 0
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("dialog").wait_for()
        assert page.evaluate("localStorage.length") == 0
        assert seen.context.cookies() == []
        allowed = ("401 (Unauthorized)", "ERR_CONNECTION", "ERR_EMPTY", "ERR_INCOMPLETE", "503 (Service")
        assert all(any(phrase in text for phrase in allowed) for text in seen.complaints), seen.complaints
    seen.__exit__()


def test_a_lost_connection_is_shown_and_restored(chrome: Browser, tmp_path: Path) -> None:
    port = str(free_port())
    with ProxyThread(tmp_path / "proxy", "--admin-auth", "none", "--admin-port", port) as proxy:
        url = proxy.url
        with proxy.client() as client:
            client.deploy("ranking", write_model(tmp_path / "1"), wait=True)
        seen = Visit(chrome, url).__enter__()
        seen.live().page.locator("#model-ranking").wait_for()
    page = seen.page
    page.get_by_text("No connection to the proxy since").wait_for()
    assert "The hosts keep serving requests" in page.locator("#banners").inner_text()
    assert page.locator("#model-ranking").count() == 1
    seen.picture("lost")
    with ProxyThread(tmp_path / "proxy", "--admin-auth", "none", "--admin-port", port):
        page.get_by_role("button", name="Try now").click()
        seen.live()
        page.get_by_text("No connection to the proxy since").wait_for(state="detached")
        # What happened while nobody looked is told too, and nothing twice.
        page.locator("#events li", has_text="started").nth(1).wait_for()
        texts = page.locator("#events li").all_inner_texts()
        assert len(texts) == len(set(texts))
    seen.__exit__()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: there is nothing to divide")
def test_the_page_shows_the_division_of_cores(chrome: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "LOOK_S", 0.5)
    cpus = sorted(os.sched_getaffinity(0))
    running = ProxyThread(tmp_path / "proxy", "--admin-auth", "none", "--cores", "control")
    folder = running.state_dir / "hosts" / "host-0"
    folder.mkdir(parents=True)
    (folder / "cpus").write_text(",".join(map(str, cpus)), encoding="utf-8")
    with running, running.client() as client, counting(running.state_dir):
        for number in (3, 4, 5):
            traffic = None if number == 3 else 10
            client.deploy("ranking", write_model(tmp_path / str(number)), traffic=traffic, wait=True)

        def given() -> dict[str, str]:
            found: dict[str, str] = running.desired().get("hosts", {}).get("host-0", {}).get("cpusets", {})
            return found

        wait_for(lambda: len(given()) == 3, 60, "a division")
        seen = Visit(chrome, running.url, viewport={"width": 1280, "height": 900})
        with seen:
            page = seen.live().page

            def drawn() -> dict[str, set[int]]:
                """Read which version stands on which CPU."""
                found: dict[str, set[int]] = {}
                for text in page.locator("#machine li.cpu > span.hidden").all_text_contents():
                    place, _, names = text.partition(": ")
                    for name in [] if names == "nobody alone" else names.split(", "):
                        found.setdefault(name, set()).add(int(place.split(",")[0].removeprefix("CPU ")))
                return found

            def agrees() -> bool:
                return drawn() == {name: read_cpus(text) for name, text in given().items()}

            wait_for(agrees, 60, "a map that agrees with desired.json")

            def pools() -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = client.machine()["cores"]["pools"]
                return found

            wait_for(lambda: {name: set(pool["cpus"]) for pool in pools() for name in pool["versions"]} == drawn())
            for pool in pools():
                page.locator("#machine p", has_text=f"{pool['name']}: CPUs").wait_for()
            assert seen.complaints == []
