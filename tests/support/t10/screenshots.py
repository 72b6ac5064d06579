"""``make screenshots``: every page, wide and narrow, light and dark, of a seeded site."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser

from tests.support.t10.places import PLACES
from tests.support.t10.seeded import Seeded, chromium, log_in, seeded_site, served_exports, visit

WIDTHS = {"wide": (1440, 900), "narrow": (390, 844)}
TALL = {"wide": 1400, "narrow": 1600}
"""A picture is cut after so many pixels."""
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


def take(site: Seeded, browser: Browser, directory: Path, only: set[str]) -> None:
    """Write the pictures.

    Args:
        only: names of pages; none: all.
    """
    for size, (width, height) in WIDTHS.items():
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                reduced_motion="reduce",
            )
            page = context.new_page()
            log_in(page, site)
            for name in PLACES:
                if only and name not in only:
                    continue
                with served_exports(site) if name == "exports" else nullcontext():
                    visit(page, site, name)
                page.wait_for_timeout(300)
                to = directory / f"{name}-{size}-{scheme}.png"
                tall = page.evaluate("document.documentElement.scrollHeight")
                clip = {
                    "x": 0,
                    "y": 0,
                    "width": width,
                    "height": min(max(tall, height), TALL[size]),
                }
                page.screenshot(path=to, clip=clip, full_page=True)  # type: ignore[arg-type]
            context.close()


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as temporary,
        seeded_site(Path(temporary)) as site,
        chromium() as browser,
    ):
        take(site, browser, directory, set(sys.argv[2:]))
    written = sorted(map(str, directory.glob("*.png")))
    subprocess.run(
        ["pngquant", "--force", "--ext", ".png", "--speed", "1", "64", *written], check=True
    )


if __name__ == "__main__":
    main()
