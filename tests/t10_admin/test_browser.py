"""The pages in a real browser, on a seeded site: access for everybody, keyboard, no scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from admin_api.pages import files
from tests.support.t10.places import PLACES, STATUS
from tests.support.t10.seeded import Seeded, Watched, chromium, log_in, seeded_site, visit

AXE = (Path(__file__).parent / "axe" / "axe-core-4.14.1.min.js").read_text()
SERIOUS = ("serious", "critical")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (1440, 390)
WRONG = sorted(STATUS.values())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    with seeded_site(tmp_path_factory.mktemp("browser")) as site:
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def violations(page: Page) -> list[str]:
    """Return what axe finds that keeps people from using a page."""
    page.evaluate(f"() => {{ if (!window.axe) {{ {AXE} }} }}")
    document: dict[str, Any] = page.evaluate(
        "() => axe.run(document, {resultTypes: ['violations'], runOnly: "
        "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
    )
    return [
        f"{violation['id']}: {json.dumps(node['target'])} {node.get('failureSummary', '')}"
        for violation in document["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"][:3]
    ]


@pytest.mark.timeout(900)
def test_every_page_is_for_everybody(site: Seeded, browser: Browser) -> None:
    """No serious violation on any page, light and dark, wide and narrow; nothing is fetched from
    elsewhere, and nothing is written to the console."""
    wrong: dict[str, list[str]] = {}
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    watched = Watched(page, site.url)
    log_in(page, site)
    for name in PLACES:
        page.set_viewport_size({"width": 1440, "height": 900})
        visit(page, site, name)
        for scheme, width in product(SCHEMES, WIDTHS):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            if found := violations(page):
                wrong[f"{name} {scheme} {width}"] = found
            over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if over > 0:
                wrong.setdefault(f"{name} {scheme} {width}", []).append(f"{over} px too wide")
    context.close()
    assert not wrong, json.dumps(wrong, indent=1)
    # A browser complains of each page whose status says that something is wrong.
    said = [
        complaint
        for complaint in watched.complaints
        if not any(f" {code} " in complaint for code in WRONG)
    ]
    assert said == []


def test_the_keyboard_is_enough(site: Seeded, browser: Browser) -> None:
    page = browser.new_page()
    log_in(page, site)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.goto(site.address("/checkpoints/{checkpoint}"))
    page.get_by_role("link", name="Delete").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete step 46000?")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("newest complete one of its run")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.close()


def test_orders_need_no_scripts_and_a_change_of_somebody_else_is_seen(
    site: Seeded, browser: Browser
) -> None:
    """Two people edit one policy: the second sees the difference, and may then store theirs."""
    first = browser.new_context(java_script_enabled=False).new_page()
    log_in(first, site)
    second = first.context.new_page()
    for page in (first, second):
        page.goto(site.address("/policy/sft-best"))
    first.get_by_label("The newest").fill("4")
    first.get_by_role("button", name="Save and apply").click()
    expect(first.get_by_role("status")).to_contain_text("Version 2 is stored")
    second.get_by_label("The newest").fill("9")
    second.get_by_role("button", name="Save and apply").click()
    expect(second.get_by_role("alert")).to_contain_text("mara stored version 2 meanwhile")
    difference = second.get_by_role("row", name="keep_newest")
    expect(difference.get_by_role("cell")).to_have_text(["4", "9"])
    second.get_by_role("button", name="Save and apply").click()
    expect(second.get_by_role("status")).to_contain_text("Version 3 is stored")
    first.context.close()


def test_a_policy_that_is_wrong_names_the_field(site: Seeded, browser: Browser) -> None:
    page = browser.new_page()
    log_in(page, site)
    page.goto(site.address("/policies/new"))
    page.get_by_label("Name").fill("wrong")
    page.get_by_label("Runs that match").fill("*")
    page.get_by_label("The newest").fill("many")
    preview = page.get_by_role("region", name="What this would delete, and why")
    expect(preview).to_contain_text("keep_newest = 'many': must be a whole number")
    page.get_by_role("button", name="Save and apply").click()
    expect(page.get_by_label("The newest")).to_have_attribute("aria-invalid", "true")
    page.close()


def test_a_form_of_another_site_does_nothing(site: Seeded, browser: Browser) -> None:
    page = browser.new_page()
    log_in(page, site)
    url = site.address("/policy/expire-experiments/switch")
    forms: tuple[dict[str, str | float | bool], ...] = (
        {"enabled": "yes", "version": "2"},
        {"csrf": "0" * 64, "enabled": "yes", "version": "2"},
    )
    for form in forms:
        answer = page.request.post(url, form=form)
        assert answer.status == 403
        assert "load the page again" in answer.text()
    page.close()


def test_what_was_changed_meanwhile_is_not_deleted_or_switched(
    site: Seeded, browser: Browser
) -> None:
    page = browser.new_page()
    log_in(page, site)
    csrf = page.request.get(site.address("/api/v1/session")).json()["csrf_token"]
    for path, form in (
        ("/checkpoints/{checkpoint}/delete", {"evidence": "of before", "insists": "yes"}),
        ("/policy/expire-experiments/switch", {"version": "1", "enabled": "yes"}),
        ("/policy/expire-experiments/remove", {"version": "1"}),
    ):
        answer = page.request.post(site.address(path), form={"csrf": csrf, **form})
        assert answer.status == 412, path
        assert "meanwhile" in answer.text(), path
    page.close()


def test_who_is_not_logged_in_comes_back_to_the_page(site: Seeded, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(site.address("/policies/plan"))
    page.get_by_label("Token").fill("spw_0123456789ab_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill(site.secret)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="What the policies do now")).to_be_visible()
    page.close()


def test_a_person_orders_what_the_api_orders(
    site: Seeded, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exports with a preview, a directory in pages, jobs, a try again, an order and its end."""
    page = browser.new_page()
    log_in(page, site)
    exports(page, site)
    page_through(page, site, monkeypatch)
    page.get_by_role("button", name="Warm: bring the bytes of").click()
    warmed = page.get_by_role("row", name=STEP).filter(has_text="Warm")
    expect(warmed.first).to_be_visible()
    page.goto(site.address("/checkpoints/{checkpoint}"))
    page.get_by_role("button", name="Warm: bring its bytes").click()
    expect(page.get_by_role("status").first).to_contain_text("Bytes come back")
    page.goto(site.address("/queue"))
    page.get_by_role("button", name="Try now").click()
    expect(page.get_by_role("status")).to_contain_text("It is tried again now")
    page.get_by_role("button", name="Cancel the upload of").first.click()
    expect(page.get_by_role("status")).to_contain_text("Its upload ends, and it is held")
    orders = page.get_by_role("region", name="Orders")
    orders.get_by_role("button", name="Release").click()
    expect(orders).to_be_hidden()
    page.goto(site.address(f"/files?path={STEP}"))
    page.get_by_role("button", name="Hold").click()
    expect(orders).to_contain_text("step-46000")
    orders.get_by_role("button", name="Release").click()
    expect(orders).to_be_hidden()
    page.goto(site.address("/trash"))
    page.get_by_role("link", name="Remove all for good").click()
    dialog = page.get_by_role("dialog", name="Remove 2 checkpoints for good?")
    expect(dialog).to_contain_text("What comes into the trash later stays")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.close()


STEP = "/checkpoints/llama-70b/pretrain-v3/step-46000"


def exports(page: Page, site: Seeded) -> None:
    """Add an export, change it, and remove it."""
    page.goto(site.address("/exports"))
    page.get_by_role("link", name="New export").click()
    preview = page.get_by_role("region", name="What this would do")
    page.get_by_label("Name").fill("/shared")
    page.get_by_label("Directory").fill("/checkpoints/nothing")
    page.get_by_role("textbox", name="Hosts").fill("10.0.0.0/33 rw")
    expect(preview).to_contain_text("'10.0.0.0/33 rw'")
    page.get_by_role("textbox", name="Hosts").fill("10.20.0.0/16 rw")
    expect(preview).to_contain_text("There is no directory nothing")
    page.get_by_role("button", name="Save and apply").click()
    expect(preview).to_contain_text("The exports are as they were")
    page.get_by_label("Directory").fill("/checkpoints/datasets")
    expect(preview).to_contain_text("The listed hosts can mount /shared")
    page.get_by_role("button", name="Save and apply").click()
    expect(page.get_by_role("status").first).to_contain_text("can mount /shared")
    page.get_by_role("link", name="Change /shared").click()
    page.get_by_role("textbox", name="Hosts").fill("10.20.0.0/16 ro")
    expect(preview).to_contain_text("No entry any more: 10.20.0.0/16 rw")
    preview.get_by_text("What NFS-Ganesha would be told").click()
    expect(preview).to_contain_text("Access_Type = RO;")
    page.get_by_role("button", name="Save and apply").click()
    page.get_by_role("link", name="Remove /shared").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("status").first).to_contain_text("/shared is no export any more")


def page_through(page: Page, site: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """See each name of a directory once, and go back to the first page."""
    monkeypatch.setattr(files, "ROWS", 7)
    page.goto(site.address(f"/files?path={STEP}"))
    names: list[str] = []
    while True:
        names += page.get_by_role("rowheader").all_inner_texts()
        more = page.get_by_role("link", name="Next page")
        if not more.count():
            break
        more.click()
    assert len(names) == len(set(names)) == 17
    assert names == sorted(names)
    page.get_by_role("link", name="First page").click()


HIDE = """() => {
  Object.defineProperty(document, "visibilityState", { value: "hidden" });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_hidden_tabs_keep_no_other_waiting(site: Seeded, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    log_in(page, site)
    for _ in range(8):
        page.goto(f"{site.url}/")
        live = page.locator("[data-events]")
        expect(live).to_have_attribute("data-state", "live", timeout=60_000)
        page.evaluate(HIDE)
        expect(live).to_have_attribute("data-state", "paused")
        page = context.new_page()
    context.close()


def test_a_chart_shows_the_time_that_was_asked_for_in_the_zone_of_the_gateway(
    site: Seeded, browser: Browser
) -> None:
    context = browser.new_context(timezone_id="Pacific/Kiritimati")
    page = context.new_page()
    log_in(page, site)
    page.goto(f"{site.url}/")
    page.wait_for_function("() => chart !== null")
    here = datetime.fromtimestamp(0).astimezone().strftime("%H:%M")
    assert page.evaluate("clock(0, 1)") == here
    # The newest sample is older than the figures above it, and says of when it is.
    at = page.evaluate("chart.data[0].at(-1)")
    expect(page.locator("[data-time]")).to_have_text(page.evaluate(f"clock({at}, 1)"))
    page.get_by_role("button", name="7 d").click()
    page.wait_for_function("() => chart.scales.x.max - chart.scales.x.min === 7 * 86400")
    day = page.evaluate("clock(chart.data[0].at(-1), 86400)")
    expect(page.locator("[data-time]")).to_contain_text(day)
    context.close()
