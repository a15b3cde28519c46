"""Pages in a browser: every control is used, nothing is asked of a network, nothing complains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, chromium
from reports import data_report, empty_report, model_report

from passwright.training.report.html import render

#: Pages by name, with the texts that each tab shows.
MODEL, EMPTY, DATA = "model", "empty", "data"
TABS = {
    MODEL: {
        "overview": "Where prediction failed",
        "steps": "pattern_2",
        "pictures": "before, 18 ops",
        "kernels": "cpp_fused_cat_sin_0",
        "left": "gain not certain enough",
        "reproduce": "passwright report own:split_cat",
    },
    EMPTY: {"overview": "Why nothing is done", "steps": "compiled as it is"},
    DATA: {
        "overview": "Predicted against measured",
        "trust": "Regret against search",
        "ranks": "by pattern",
        "misses": "The worst misses",
        "data": "What the data set holds",
    },
}
#: Widths of a phone, of a window, and of A4.
PHONE, WINDOW, PAPER = 390, 1200, 794


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, report in ((MODEL, model_report()), (EMPTY, empty_report()), (DATA, data_report())):
        found[name] = folder / f"{name}.html"
        found[name].write_text(render(report), encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(window: Page) -> Iterator[Page]:
    """The window as it was; in the end nothing may have complained, and nothing been fetched."""
    window.emulate()
    window.resize(WINDOW)
    window.driver.get("about:blank")
    window.errors()
    window.requested()
    yield window
    assert window.errors() == []
    away = [url for url in window.requested() if not url.startswith(("file:", "data:", "blob:"))]
    assert [url for url in away if url != "about:blank"] == []


def box_of(page: Page, which: str = ".stage svg:not([hidden])") -> list[float]:
    text = page.run("return arguments[0].getAttribute('viewBox')", page.find(which))
    return [float(number) for number in text.split()]


@pytest.mark.parametrize("name", TABS)
def test_every_tab_shows_its_part(page: Page, pages: dict[str, Path], name: str) -> None:
    page.open(pages[name])
    for tab, words in TABS[name].items():
        page.click(f"#tab-{tab}")
        [panel] = page.visible("[role=tabpanel]")
        assert panel.get_attribute("id") == tab
        assert words in panel.text
        # Every chart that is seen is drawn.
        for place in page.visible("[data-chart]"):
            assert place.find_elements("css selector", "svg.main-svg"), tab


def test_tabs_by_keyboard(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[MODEL])
    page.click("#tab-overview")
    page.find("#tab-overview").send_keys("\ue014")  # right
    assert page.find("#tab-steps").get_attribute("aria-selected") == "true"
    page.find("#tab-steps").send_keys("\ue010")  # end
    assert page.find("#reproduce").is_displayed()


def test_what_is_measured_stands_beside_what_was_predicted(
    page: Page, pages: dict[str, Path]
) -> None:
    page.open(pages[MODEL])
    assert "1.35x" in page.find(".hero .big").text
    assert "slower than predicted" in page.find("#overview").text
    assert len(page.all("#overview [data-chart=steps] .scatterlayer .trace")) == 2


def test_no_gain_expected_is_an_answer(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[EMPTY])
    assert page.find(".hero .calm").text == "No gain expected"
    assert "2 candidates were looked at; 1 may gain" in page.find(".hero").text
    assert page.find("#overview table code").text == "tall @ x:y"
    assert page.all(".badge.bad") == []


def test_pictures_zoom_and_move(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[MODEL])
    page.click("#tab-pictures")
    assert len(page.visible(".stage svg")) == 2
    before = box_of(page)
    page.click(".view [data-do=in]")
    assert box_of(page)[2] == pytest.approx(before[2] / 1.4)
    page.click(".view [data-do=out]")
    assert box_of(page) == pytest.approx(before)
    page.click(".view [data-do=in]")
    page.click(".view [data-do=fit]")
    svg = page.find(".stage svg")
    size = [float(svg.get_attribute(f"data-{side}")) for side in ("width", "height")]
    assert box_of(page) == pytest.approx([0, 0, *size])
    _drag(page, svg, 40, 30)
    moved = box_of(page)
    assert moved[0] < 0
    assert moved[1] < 0
    assert moved[2:] == pytest.approx(size)


def test_pictures_by_keyboard(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[MODEL])
    page.click("#tab-pictures")
    svg = page.find(".stage svg:not([hidden])")
    svg.send_keys("0")
    before = box_of(page)
    svg.send_keys("+")
    assert box_of(page)[2] == pytest.approx(before[2] / 1.4)
    svg.send_keys("0\ue014\ue015")  # right, down
    assert box_of(page) == pytest.approx([before[2] / 8, before[3] / 8, *before[2:]])
    svg.send_keys("\ue012\ue013-")  # left, up
    assert box_of(page)[2] == pytest.approx(before[2] * 1.4)


def test_every_op_can_be_seen_and_steps_be_lit(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[MODEL])
    page.click("#tab-pictures")
    few = len(page.visible(".view:first-child .stage .box"))
    page.click(".view [data-do=every]")
    assert len(page.visible(".view:first-child .stage .box")) > few
    page.click("[data-light='1']")
    dim = page.run("return document.querySelectorAll('.stage .box.removed.dim').length")
    assert dim == 0
    assert (
        page.run("return document.querySelectorAll('.stage .box.inserted:not(.dim)').length") == 0
    )
    page.click("[data-light='']")
    assert page.run("return document.querySelectorAll('.stage .dim').length") == 0


def test_a_step_leads_to_its_picture(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[MODEL])
    page.click("#tab-steps")
    page.click("#step-1 summary")
    assert "- a = torch.sin(%x)" in page.find("#step-1 pre").text
    page.click("#step-1 [data-look]")
    assert page.find("#pictures").is_displayed()
    assert page.find("[data-light='1']").get_attribute("aria-pressed") == "true"


def test_candidates_are_filtered(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[MODEL])
    page.click("#tab-left")
    page.find("[data-filter]").send_keys("slower wide")
    assert [row.text.split()[0] for row in page.visible("#left-table tbody tr")] == ["wide"]


def test_text_is_copied_and_saved(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[MODEL])
    page.click("#tab-reproduce")
    page.click("[data-copy=command]")
    assert page.run(
        "return new Promise((done) => setTimeout(() =>"
        " done(document.querySelector('[data-copy=command]').textContent), 200))"
    ) in ("Copied", "Selected")
    page.click("[data-save=script]")


def test_links_lead_to_misses(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[DATA])
    page.click("#tab-misses")
    page.click("a[href='#miss-1']")
    assert page.find("#miss-1").get_attribute("open") is not None
    assert "zoo:a/" in page.find("#miss-1").text
    page.driver.get(f"{pages[DATA].as_uri()}#miss-2")
    page.driver.refresh()
    assert page.find("#miss-2").is_displayed()
    assert page.find("#miss-2").get_attribute("open") is not None


def test_a_point_leads_to_its_miss(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages[DATA])
    links = page.run(
        "return JSON.parse(document.getElementById('charts').textContent).scatter.links"
    )
    trace, point = next(
        (t, p) for t, row in enumerate(links) for p, link in enumerate(row) if link == "miss-1"
    )
    page.run(
        "document.querySelector('[data-chart=scatter]').emit('plotly_click',"
        " {points: [{curveNumber: arguments[0], pointIndex: arguments[1]}]})",
        trace,
        point,
    )
    assert page.find("#miss-1").is_displayed()


@pytest.mark.parametrize("name", [MODEL, DATA])
def test_light_and_dark(page: Page, pages: dict[str, Path], name: str) -> None:
    def looks() -> tuple[Any, ...]:
        return tuple(
            page.run(
                "const ink = getComputedStyle(document.body);"
                "const axis = document.querySelector('[data-chart] .xtick text');"
                "return [ink.backgroundColor, ink.color, getComputedStyle(axis).fill]"
            )
        )

    page.emulate(scheme="light")
    page.open(pages[name])
    light = looks()
    page.emulate(scheme="dark")
    # Charts hear of it a moment later.
    page.until(lambda: all(one != other for one, other in zip(light, looks(), strict=True)))
    dark = looks()
    # The button is stronger than the system.
    page.click(".theme")
    page.until(lambda: looks() == light)
    page.click(".theme")
    page.until(lambda: looks() == dark)


@pytest.mark.parametrize("name", TABS)
def test_a_phone_does_not_scroll_sideways(page: Page, pages: dict[str, Path], name: str) -> None:
    page.resize(PHONE, 844)
    page.open(pages[name])
    for tab in TABS[name]:
        page.run("document.getElementById(arguments[0]).click()", f"tab-{tab}")
        assert page.run("return document.documentElement.scrollWidth") <= PHONE, tab


@pytest.mark.parametrize("name", [MODEL, DATA])
def test_print_shows_all_parts_in_light(page: Page, pages: dict[str, Path], name: str) -> None:
    page.emulate(scheme="dark")
    page.open(pages[name])
    page.emulate(media="print", scheme="dark")
    panels = page.all("[role=tabpanel]")
    assert all(panel.is_displayed() for panel in panels)
    assert not page.find("nav.tabs").is_displayed()
    assert (
        page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    charts = page.all("[data-chart]")
    page.until(lambda: len(page.all("[data-chart] svg.main-svg")) >= len(charts))
    assert len(page.print_to_pdf()) > 20_000
    page.resize(PAPER, 1123)
    assert page.run("return document.documentElement.scrollWidth") <= PAPER


def _drag(page: Page, one: Any, right: int, down: int) -> None:
    from selenium.webdriver import ActionChains

    page.run("arguments[0].scrollIntoView({block: 'center'})", one)
    ActionChains(page.driver).move_to_element(one).click_and_hold().move_by_offset(
        right, down
    ).release().perform()
