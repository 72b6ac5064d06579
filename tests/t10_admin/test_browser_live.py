"""A person governs a real gateway in a real browser: watches a save, promotes, sets a policy."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from gateway.db.schema import opened, reading
from gateway.service import checkpoints
from tests.support.gateway import Gateway, running
from tests.support.ports import free_port
from tests.support.t10.seeded import Watched, chromium
from tests.support.waiting import until

NFSLOAD = Path(__file__).parents[2] / "build" / "bench" / "nfsload"
RANKS = 4
MIB = 1024 * 1024
SLOW = 6 * MIB
"""Bytes per second that the drain may send, so that there is something to watch."""
WAIT_MS = 40_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    values: dict[str, dict[str, Any]] = {
        "admin": {"enabled": True, "port": free_port()},
        "checkpoints": {"rule": [{"name": "ranks", "path": "run/step_{step}", "files": RANKS}]},
        "drain": {"settle_seconds": 0.2, "poll_seconds": 0.2, "bytes_per_second": SLOW},
    }
    with running(tmp_path_factory.mktemp("live"), values) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def save(gateway: Gateway, step: int, size_mib: int) -> None:
    """Save a checkpoint as the ranks of a job do, each with its own connection."""
    command: list[str | Path] = [
        *(NFSLOAD, "127.0.0.1", str(gateway.port), "/checkpoints", "save"),
        *("--connections", str(RANKS), "--file", str(size_mib * MIB)),
        *("--dir", f"run/step_{step}"),
    ]
    subprocess.run(command, check=True, capture_output=True)


def states(gateway: Gateway) -> dict[int | None, str]:
    """Return the state of each step."""
    settings = gateway.settings
    with opened(settings.database_url) as database, reading(database) as session:
        return {
            checkpoint.step: checkpoint.state for checkpoint in checkpoints.every(session, settings)
        }


def logged_in(gateway: Gateway, browser: Browser) -> tuple[Page, Watched]:
    made = gateway.spillway("token", "create", "--role", "admin", "--name", "mara")
    secret = made.stdout.strip()
    url = f"http://127.0.0.1:{gateway.settings.admin.port}"
    context = browser.new_context(base_url=url, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    watched = Watched(page, url)
    page.goto("/")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Dashboard")).to_be_visible()
    return page, watched


def test_a_person_governs_a_gateway(gateway: Gateway, browser: Browser) -> None:
    expect.set_options(timeout=WAIT_MS)
    save(gateway, 1, 1)
    until(lambda: states(gateway).get(1) == "durable", "step 1")
    page, watched = logged_in(gateway, browser)
    watch_a_save(gateway, page)
    promote(gateway, page)
    delete_by_a_policy(gateway, page)
    take_back(gateway, page)
    remove_for_good(gateway, page)
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_role("row", name="/undelete")).to_contain_text("done")
    assert watched.complaints == []
    export(page)  # a browser complains of the answer to a wrong one


def watch_a_save(gateway: Gateway, page: Page) -> None:
    """See a save drain on the dashboard. The page is not loaded again."""
    expect(page.locator("[data-events]")).to_have_attribute("data-state", "live")
    only_here = page.locator(".figure").filter(has_text="Only on this gateway")
    expect(only_here).to_contain_text("0 files")
    save(gateway, 2, 16)
    expect(only_here).to_contain_text(re.compile(r"[1-4] files"))
    uploads = page.get_by_role("region", name="On its way")
    expect(uploads.get_by_role("img", name=re.compile("per cent sent")).first).to_be_visible()
    risks = page.get_by_role("region", name="What a loss of this gateway would cost")
    expect(risks).to_contain_text("MiB")
    expect(only_here).to_contain_text("0 files")
    expect(risks).to_contain_text("none")


def promote(gateway: Gateway, page: Page) -> None:
    """Promote a checkpoint from its page, and see the copy."""
    until(lambda: states(gateway).get(2) == "durable", "step 2")
    page.get_by_role("link", name="Checkpoints").first.click()
    page.get_by_role("link", name="step 2", exact=True).click()
    page.get_by_role("link", name="Promote").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name of the copy").fill("release-1")
    dialog.get_by_role("button", name="Promote it").click()
    row = page.get_by_role("row", name="release-1")
    # A page cannot be loaded again while the browser is on its way to it.
    expect(row).to_be_visible()

    def is_promoted() -> bool:
        page.reload()
        return "done" in row.inner_text()

    until(is_promoted, "the promotion")


def delete_by_a_policy(gateway: Gateway, page: Page) -> None:
    """Write a policy, see what it would delete, store it, and see what it did."""
    save(gateway, 3, 1)
    until(lambda: states(gateway).get(3) == "durable", "step 3")
    page.goto("/policies")
    page.get_by_role("link", name="New policy").click()
    page.get_by_label("Name").fill("newest-one")
    page.get_by_label("Runs that match").fill("run")
    page.get_by_label("The newest").fill("1")
    page.get_by_label("Wait, hours").fill("0")
    preview = page.get_by_role("region", name="What this would delete, and why")
    expect(preview).to_contain_text("1 checkpoint more is deleted")
    expect(preview).to_contain_text("step 1")
    page.get_by_role("button", name="Save and apply").click()
    expect(page.get_by_role("status").first).to_contain_text("Version 1 is stored")
    approve(page)
    # It plans when it starts, and then once a minute.
    gateway.kill("checkpoints")

    def is_done() -> bool:
        page.goto("/policies")
        return "Deleted" in page.get_by_role("region", name="What was done").inner_text()

    until(is_done, "the deletion", 60)
    until(lambda: 1 not in states(gateway), "step 1 is not listed")


def take_back(gateway: Gateway, page: Page) -> None:
    """Take the deleted checkpoint out of the trash."""
    page.get_by_role("link", name="Trash").click()
    page.get_by_role("link", name="Restore").click()
    page.get_by_role("button", name="Restore it").click()
    expect(page.get_by_role("status").first).to_contain_text("is back")
    until(lambda: 1 in states(gateway), "step 1 is back")


def remove_for_good(gateway: Gateway, page: Page) -> None:
    """Delete the checkpoint, and empty the trash: a job does it, and its page shows the end."""
    page.goto("/checkpoints/list?run=run")
    page.get_by_role("link", name="step 1", exact=True).click()
    page.get_by_role("link", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete it").click()
    page.get_by_role("link", name="Remove all for good").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove for good").click()
    row = page.get_by_role("row", name="everything in the trash")
    expect(row).to_contain_text("1 of 1 checkpoints removed for good")
    page.goto("/trash")
    expect(page.get_by_text("The trash is empty")).to_be_visible()


def export(page: Page) -> None:
    """Let hosts mount a directory: the running server has it at once. A wrong one changes
    nothing."""
    page.get_by_role("link", name="Exports").click()
    page.get_by_role("link", name="New export").click()
    for name, said in (
        ("/checkpoints/run", "would hide the other"),
        ("/one-run", "Its hosts can mount /one-run from now on"),
    ):
        page.get_by_label("Name").fill(name)
        page.get_by_label("Directory").fill("/checkpoints/run")
        page.get_by_role("textbox", name="Hosts").fill("127.0.0.0/8 ro")
        page.get_by_role("button", name="Save and apply").click()
        expect(page.get_by_role("main")).to_contain_text(said)
    row = page.get_by_role("row", name="/one-run")
    expect(row).to_contain_text("served")


def approve(page: Page) -> None:
    """Approve the plan if it deletes so much that a person must."""
    page.goto("/policies/plan")
    button = page.get_by_role("button", name="Approve these deletions")
    if button.count():
        button.click()
        expect(page.get_by_role("status").first).to_contain_text("Approved")
