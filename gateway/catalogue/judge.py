"""Verdict on one checkpoint in one transaction: by rules, and by its record once it is complete.

See gateway.catalogue.record.
"""

from __future__ import annotations

from gateway.catalogue.content import ends_by_kind
from gateway.catalogue.display_state import CheckpointRow, Look
from gateway.catalogue.facts import (
    READ_MAX_BYTES,
    CheckpointState,
    Completeness,
    Grade,
    Members,
    Recognised,
    Unread,
)
from gateway.catalogue.member_scan import ITSELF, MemberScan
from gateway.catalogue.record import (
    CheckpointRecord,
    Difference,
    QuietTimes,
    broken,
    difference,
    names_of,
    shape_of,
    unpacked,
)
from gateway.catalogue.rules import Rules
from gateway.catalogue.tree import CatalogueView, Node


class CheckpointJudge:
    """Judges the checkpoints of one namespace. Not safe to use from several threads.

    Args:
        prefix: prefix of the keys.
    """

    def __init__(self, rules: Rules, prefix: str) -> None:
        self._rules = rules
        self._prefix = prefix
        self._quiet = QuietTimes()

    def forget(self, ino: int) -> None:
        """Forget a checkpoint that is none any more."""
        self._quiet.forget(ino)

    def look(
        self,
        view: CatalogueView,
        node: Node,
        found: Recognised,
        before: CheckpointRow | None,
        known: CheckpointRecord | None,
    ) -> Look:
        scan = MemberScan(view, node, found, self._prefix)
        evidence, wanted, is_broken = scan.evidence(), None, False
        members, record = scan.members(), known
        if known is not None and _is_emptied(known, scan, members):
            if self._rules.recognise(node) is None:
                return Look(node.entry.ino, before, None, None, known, None)
            record = None  # another save begins in its place
        try:
            verdict, is_broken = self._verdict(view, node, found, scan, members, record)
            if verdict.grade is not None:
                record = _recorded(node, found, scan, members, verdict, record)
            complete_ns = None if record is None else record.complete_ns
        except Unread as exc:
            # Nothing is recorded of what was not judged.
            verdict, is_broken = _kept(before, record, found.rule, exc)
            is_same = before is not None and before.evidence == evidence and record is not None
            wanted = self._wanted(exc, is_same)
            # The hash stays that of the members that the verdict is about.
            evidence = "" if before is None else before.evidence
            complete_ns = None if before is None else before.complete_ns
        state = CheckpointState.BROKEN if is_broken else _state(verdict, scan)
        if record is not None and state is CheckpointState.DURABLE and record.durable_ns is None:
            record = record._replace(durable_ns=scan.stored_ns)
        row = CheckpointRow(
            node.entry.ino,
            node.parent,
            b"/".join(node.parts),
            found.run,
            found.step,
            found.rule,
            int(found.extent),
            str(state),
            verdict.reason,
            scan.files,
            scan.size,
            scan.dirty_files,
            scan.dirty_size,
            None if verdict.grade is None else complete_ns,
            scan.stored_ns if state is CheckpointState.DURABLE else None,
            verdict.due_ns,
            evidence,
            scan.dirty_since_ns,
            scan.storage_class,
            None if verdict.grade is None else str(verdict.grade),
        )
        return Look(row.ino, before, row, wanted, known, record)

    def _verdict(
        self,
        view: CatalogueView,
        node: Node,
        recognition: Recognised,
        scan: MemberScan,
        members: Members,
        known: CheckpointRecord | None,
    ) -> tuple[Completeness, bool]:
        """Return whether a checkpoint is complete, by its record if it has one that still holds,
        and whether it is broken. Raises Unread."""
        if known is not None and known.rule == recognition.rule:
            seen = _difference(known, scan, members)
            # That nothing changed for a while was the weakest evidence, and more came since.
            is_going = seen.is_more and not seen.gone and known.grade == Grade.MARKED
            if not (seen.written or seen.gone or seen.shorter or is_going):
                reason = self._rules.standing(node, recognition, members)
                return Completeness(reason, None, None if reason else Grade(known.grade)), False
            if not seen.written and not is_going and self._is_broken(node, members, seen):
                return Completeness(broken(seen, known.files)), True
        neighbours = view.neighbours(recognition.run, node.entry.ino)
        since_ns = self._quiet.since_ns(node.entry.ino, scan.evidence())
        return self._rules.verdict(node, recognition, members, since_ns, neighbours), False

    def _is_broken(self, node: Node, members: Members, seen: Difference) -> bool:
        """Return whether members are gone or cut off. One that is shorter and whole was written
        again. Raises Unread."""
        if seen.gone or not seen.shorter:
            return bool(seen.gone)
        if members.open_files:
            return False
        shorter = set(seen.shorter)
        return not all(
            ends_by_kind(node, node.parts[-1] if path == ITSELF else path, member.entry)
            for member in members.each or ()
            if (path := member.path) in shorter or ITSELF in shorter
        )

    def _wanted(self, exc: Unread, is_same: bool) -> int | None:
        """Return the file that must be fetched for a verdict, or None.

        Args:
            is_same: whether the members are as they were at the last verdict.
        """
        is_known = is_same and exc.name not in self._rules.trackers
        # A checkpoint of one large file is not fetched for a look at its end.
        if is_known or not exc.entry.is_absent or exc.entry.size > READ_MAX_BYTES:
            return None
        return exc.entry.ino


def _kept(
    before: CheckpointRow | None, known: CheckpointRecord | None, rule: str, exc: Unread
) -> tuple[Completeness, bool]:
    """Return the verdict of before, because there cannot be a new one now, and whether the
    checkpoint was broken."""
    if before is None or before.rule != rule:
        return Completeness(str(exc)), False
    if before.state in (CheckpointState.WRITING, CheckpointState.BROKEN):
        return Completeness(before.reason, before.due_ns), before.state == CheckpointState.BROKEN
    # An older release had no records: all that is left of what it saw is that it was complete.
    grade = Grade.MARKED if known is None else Grade(known.grade)
    return Completeness(None, None, grade), False


def _difference(known: CheckpointRecord, scan: MemberScan, members: Members) -> Difference:
    """Compare the members of a checkpoint with its record."""
    if known.contents == scan.contents():
        return Difference((), (), (), is_more=False)
    if known.members is not None and members.each is not None:
        return difference(known.members, scan.for_record())
    # Too many are there to tell which.
    is_less = scan.files < known.files or scan.size < known.size
    if is_less and members.newest_file_ns <= known.complete_ns:
        return Difference([b"?"] * max(1, known.files - scan.files), (), (), is_more=False)
    return Difference((), (), [b"?"], is_more=False)


def _is_emptied(known: CheckpointRecord, scan: MemberScan, members: Members) -> bool:
    """Return whether none of the members that a checkpoint had is left."""
    if known.members is None or members.each is None:
        return not scan.files
    kept = {member.ino for member in unpacked(known.members).values()}
    return known.contents != scan.contents() and not any(
        member.entry.ino in kept for member in members.each
    )


def _recorded(
    node: Node,
    recognition: Recognised,
    scan: MemberScan,
    members: Members,
    verdict: Completeness,
    known: CheckpointRecord | None,
) -> CheckpointRecord:
    """Return the record of a complete checkpoint. While what it had is unchanged, it keeps its time
    of completion and its place in the order: a file that was added makes it no newer."""
    contents = scan.contents()
    facts = (
        node.entry.ino,
        recognition.run,
        recognition.rule,
        recognition.step,
        int(recognition.extent),
    )
    if known is not None and known.contents == contents:
        return known._replace(
            run=recognition.run,
            rule=recognition.rule,
            step=recognition.step,
            extent=int(recognition.extent),
        )
    is_added_to = known is not None and _difference(known, scan, members)[:3] == ([], [], [])
    checkpoint_members = members.each or ()
    names = names_of(member.path for member in checkpoint_members)
    return CheckpointRecord(
        *facts,
        str(verdict.grade),
        known.completion if known is not None and is_added_to else None,
        known.complete_ns if known is not None and is_added_to else members.newest_ns,
        known.durable_ns if known is not None and is_added_to else None,
        scan.files,
        scan.size,
        contents,
        shape_of(names) if verdict.is_pattern else "",
        scan.kept(),
    )


def _state(verdict: Completeness, scan: MemberScan) -> CheckpointState:
    if verdict.reason is not None:
        return CheckpointState.WRITING
    if scan.dirty_files == 0:
        return CheckpointState.DURABLE
    return CheckpointState.COMPLETE if scan.dirty_files == scan.files else CheckpointState.DRAINING
