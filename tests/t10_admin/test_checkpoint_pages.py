"""The pages of checkpoints say what each is, what shows that, and why it stays or goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from gateway.checkpoints.shown import MEANING
from tests.support.volumes import query
from tests.t9_checkpoints.keeping import save
from tests.t10_admin.filled import Filled, filled

BROKEN = "2 of 5 files are gone"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Filled]:
    with filled(tmp_path) as made:
        yield made


def text_of(page: str) -> str:
    """Return the text of a page, with single spaces."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", page)).split())


def graded(site: Filled, path: str, grade: str | None, state: str | None = None) -> int:
    """Give a checkpoint another grade and state. Returns its inode."""
    ino = site.ino(path)
    given = {"grade": grade, "ino": ino}
    query(site.site.settings, "UPDATE checkpoint SET grade = :grade WHERE ino = :ino", **given)
    if state is not None:
        query(
            site.site.settings,
            "UPDATE checkpoint SET state = :state, reason = :reason WHERE ino = :ino",
            state=state,
            reason=BROKEN,
            ino=ino,
        )
    return ino


def test_a_list_says_what_shows_that_each_is_complete(site: Filled) -> None:
    for step, grade in ((1, "listed"), (2, "alike"), (3, "marked")):
        graded(site, f"a/step-{step}", grade)
    graded(site, "a/step-4", None, "broken")
    text = text_of(site.page("/checkpoints/list", run="jobs/a"))
    assert f"step 4 /checkpoints/jobs/a/step-4 {BROKEN} broken " in text
    for word in ("broken", "listed", "alike", "marked"):
        assert f"{word} : {MEANING[word]}." in text, word
    assert "Remarks" not in text
    # What is on no row is not explained.
    text = text_of(site.page("/checkpoints/list", run="jobs/a", text="step-1"))
    assert MEANING["listed"] in text and MEANING["marked"] not in text
    assert "broken" in text_of(site.page("/checkpoints/list", state="broken"))
    assert BROKEN in text_of(site.page("/checkpoints"))


def test_two_checkpoints_of_one_step_are_told_apart(site: Filled) -> None:
    with site.world() as world:
        save(world, "jobs/a/checkpoint-3")
    policy = {"name": "newest", "run": "jobs/*", "keep_newest": 1, "wait_hours": 0}
    site.ask("POST", "policies", 201, json=policy)
    for page in ("/checkpoints", "/checkpoints/list?run=jobs/a", "/policies/plan"):
        text = text_of(site.page(page))
        for name in ("step-3", "checkpoint-3"):
            assert f"step 3 /checkpoints/jobs/a/{name} " in text, page


def test_a_checkpoint_says_its_state_its_grade_and_its_place(site: Filled) -> None:
    ino = graded(site, "a/step-2", "alike")
    text = text_of(site.page(f"/checkpoints/{ino}"))
    assert f"State durable: {MEANING['durable']}" in text
    assert f"Grade alike: {MEANING['alike']}" in text
    place = f"s3://{site.site.settings.bucket.name}/jobs/a/step-2"
    assert f"In the bucket {place} Manifest" in text
    assert "It is broken" not in text
    ino = graded(site, "b/step-1", "marked")
    text = text_of(site.page(f"/checkpoints/{ino}"))
    assert "/jobs/b/step-1 not all of it yet Manifest" in text
    graded(site, "b/step-1", None, "broken")
    text = text_of(site.page(f"/checkpoints/{ino}"))
    assert f"It is broken: {BROKEN} It was complete. No other checkpoint is deleted" in text
    assert "Grade" not in text


def test_a_plan_says_what_expires_and_what_is_kept(site: Filled) -> None:
    policy = {"name": "newest", "run": "jobs/*", "keep_newest": 1, "wait_hours": 0}
    site.ask("POST", "policies", 201, json=policy)
    text = text_of(site.page("/policies/plan"))
    assert "Of 6 checkpoints 3 expire " in text and "3 are kept" in text
    assert re.search("step 1 /checkpoints/jobs/a/step-1 expires [0-9]+ B ", text)
    assert re.search("step 4 /checkpoints/jobs/a/step-4 kept [0-9]+ B ", text)
    fate = text_of(site.page(f"/checkpoints/{site.ino('a/step-1')}/fate"))
    assert "It goes into the trash, from which it can be taken back." in fate
    fate = text_of(site.page(f"/checkpoints/{site.ino('a/step-4')}/fate"))
    assert "kept" in fate and "It goes into the trash" not in fate
