"""The settings about checkpoints: which places are some, and what is asked before they are deleted.

They are sections of ``gateway.settings``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway import checks
from gateway.declare import key as _key


@dataclass(frozen=True)
class CheckpointsSettings:
    rule: tuple[Mapping[str, Any], ...] = _key(
        "Rules that recognise checkpoints, before those of known frameworks. Each is a table of\n"
        'its own: [[checkpoints.rule]], name = "ours", path = "{run}/step-{step}", and one or\n'
        'more of: files = 8, or files = ["rank-*.pt"]; marker = "DONE"; quiet_seconds = 60.',
        (),
        checks.rules,
    )
    quiet_seconds: float = _key(
        "A checkpoint that neither an index nor others of its run show to be whole is complete\n"
        "when nothing has changed in it for so long: a rank may be late.",
        60.0,
        checks.at_least(0),
    )
    rpo_seconds: float = _key(
        "spillway status raises an alarm when a run would lose more than so many seconds of its\n"
        "work with this gateway: the age of its newest checkpoint in the bucket, if newer data\n"
        "is not there. 0: no alarm.",
        0.0,
        checks.at_least(0),
    )
    rpo_bytes: int = _key(
        "The same for the bytes of a run that only this gateway has. 0: no alarm.",
        0,
        checks.at_least(0),
    )


@dataclass(frozen=True)
class RetentionSettings:
    ask_share: float = _key(
        "What policies delete of a run waits for a person (spillway policy approve), if it is\n"
        "more than this share of the run's checkpoints, or of their bytes. Up to four deletions\n"
        "are not asked about if the run keeps as many. The same share counts for a policy.",
        0.5,
        checks.between(0, 1),
    )
    least_share: float = _key(
        "A checkpoint is deleted only if a newer one of its run, for which it goes, has at least\n"
        "this share of its bytes: what was cut off, or is another thing, replaces none.",
        0.5,
        checks.between(0, 1),
    )
    skip_superseded: bool = _key(
        "A complete checkpoint is not uploaded if a newer one of its run is complete, and a\n"
        "policy with wait_hours = 0 deletes it as soon as that one is in the bucket.",
        True,
    )
    trash_seconds: float = _key(
        "For so long a checkpoint that a policy deleted can be taken back: spillway undelete.\n"
        "0: it is removed at once.",
        7 * 86_400.0,
        checks.at_least(0),
    )
    trash_short_seconds: float = _key(
        "While the disk is too full although the evictor had its time, what has been in the trash\n"
        "for so long, and has bytes that only the disk has, is removed early.",
        3600.0,
        checks.at_least(0),
    )
    trash_max_bytes: int = _key(
        "While the files in the trash have more than so many bytes, the oldest checkpoints there\n"
        "are removed early: those that their runs can do without, and that have been there for\n"
        "trash_short_seconds. 0: no limit.",
        0,
        checks.at_least(0),
    )
    rotation_hours: float = _key(
        "What clients remove of the newest checkpoint of a run that the bucket has whole stays in\n"
        "the bucket until a newer one is there, or for so many hours. 0: it is removed at once.",
        72.0,
        checks.at_least(0),
    )
