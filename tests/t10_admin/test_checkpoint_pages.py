"""The pages of checkpoints say what each is, what shows that, and why it stays or goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from admin_api.pages import checkpoints
from gateway.catalogue.display_state import MEANING
from gateway.service import checkpoints as service
from tests.support.checkpoints.keeping import save
from tests.support.t10.filled import Filled, filled
from tests.support.volumes import query

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


def test_a_run_with_an_alarm_says_why_and_where_to_look(
    site: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "more than checkpoints.rpo_bytes (5 B) are only here"
    monkeypatch.setattr(service, "alarm", lambda _settings, _risk: why)
    for page in ("/", "/checkpoints"):
        text = text_of(site.page(page))
        assert f"M{why[1:]}: see what the drain waits for ." in text, page


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


def test_a_checkpoint_lists_its_files_and_what_the_bucket_has_of_each(
    site: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = site.page(f"/checkpoints/{site.ino('a/step-2')}")
    assert re.search("__0_0.distcp [0-9.]+ B as it is here", text_of(page))
    assert "/files?path=/checkpoints/jobs/a/step-2/__0_0.distcp" in page
    page = site.page(f"/checkpoints/{site.ino('b/step-1')}")
    assert re.search("__0_0.distcp [0-9.]+ B not as it is here", text_of(page))
    assert "These are the first" not in page
    monkeypatch.setattr(checkpoints, "MEMBERS_SHOWN", 1)
    page = site.page(f"/checkpoints/{site.ino('a/step-2')}")
    assert "These are the first 1 by name." in text_of(page)


def test_a_checkpoint_of_one_file_is_its_file(site: Filled) -> None:
    with site.world() as world:
        world.write("jobs/c/model-step=5.ckpt", b"1")
        world.write("jobs/c/model-step=6.ckpt", b"1")
    page = site.page(f"/checkpoints/{site.ino('c/model-step=5.ckpt')}")
    assert "/files?path=/checkpoints/jobs/c/model-step%3D5.ckpt" in page
    assert "model-step=5.ckpt 1 B not as it is here" in text_of(page)


def test_a_checkpoint_without_a_step_keeps_its_name(site: Filled) -> None:
    ino = site.ino("a/step-2")
    query(
        site.site.settings,
        "UPDATE checkpoint SET step = NULL, path = :path WHERE ino = :ino",
        path=b"jobs/a/bestOfAll",
        ino=ino,
    )
    assert "<h1>bestOfAll</h1>" in site.page(f"/checkpoints/{ino}")


def test_a_deletion_is_a_red_button_only_where_no_guard_keeps_the_checkpoint(site: Filled) -> None:
    newest, older = site.ino("a/step-4"), site.ino("a/step-3")
    link = '<a class="button {}" href="/checkpoints/{}/delete"'
    assert link.format("", newest) in site.page(f"/checkpoints/{newest}")
    assert link.format("danger", older) in site.page(f"/checkpoints/{older}")
    assert "although a deletion guard keeps it" in site.page(f"/checkpoints/{newest}/delete")


def test_what_people_say_is_shown_as_they_wrote_it(site: Filled) -> None:
    ino = site.ino("a/step-1")
    reason = "iPhone run, see jira"
    site.ask("DELETE", f"checkpoints/{ino}?reason={reason}")
    for page in ("/trash", "/policies/log"):
        assert reason in text_of(site.page(page)), page


def test_files_say_what_the_bucket_has_of_each(site: Filled) -> None:
    page = text_of(site.page("/files", path="/checkpoints/jobs/a/step-2"))
    assert re.search(r"\.metadata on the disk as it is here [0-9.]+ B", page)
    with site.world() as world:
        world.write("jobs/a/step-2/.metadata", b"another")
    page = text_of(site.page("/files", path="/checkpoints/jobs/a/step-2"))
    assert re.search(r"\.metadata on the disk an older version [0-9.]+ B", page)
    page = text_of(site.page("/files", path="/checkpoints/jobs/b/step-1"))
    assert re.search(r"__0_0.distcp on the disk nothing of it [0-9.]+ B", page)


def test_a_plan_says_what_is_deleted_and_what_is_kept(site: Filled) -> None:
    policy = {"name": "newest", "run": "jobs/*", "keep_newest": 1, "wait_hours": 0}
    site.ask("POST", "policies", 201, json=policy)
    text = text_of(site.page("/policies/plan"))
    assert "Of 6 checkpoints 3 are deleted " in text and "3 are kept" in text
    assert re.search("step 1 /checkpoints/jobs/a/step-1 deleted [0-9]+ B ", text)
    assert re.search("step 4 /checkpoints/jobs/a/step-4 kept [0-9]+ B ", text)
    fate = text_of(site.page(f"/checkpoints/{site.ino('a/step-1')}/fate"))
    assert "It goes into the trash, from which it can be restored." in fate
    fate = text_of(site.page(f"/checkpoints/{site.ino('a/step-4')}/fate"))
    assert "kept" in fate and "It goes into the trash" not in fate
