"""The SQL of retention, built like gateway.db.statements."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, bindparam, delete, func, insert, literal_column, select, update

from gateway.db import retentionmodels as models
from gateway.db.compiled import Statement, b
from gateway.db.statements import (
    catalogue,
    checkpoint,
    checkpoint_record,
    dirent,
    inode,
    object_,
    superseded,
)
from gateway.retention.facts import Checkpoint

policy: Any = models.Policy.__table__
action: Any = models.Action.__table__
approval: Any = models.Approval.__table__
policy_approval: Any = models.PolicyApproval.__table__
known_time: Any = models.KnownTime.__table__

_COLUMNS = {
    **{column.name: column for column in checkpoint.c},
    "completion": checkpoint_record.c.completion,
    "recorded_ns": checkpoint_record.c.complete_ns,
}
_CHECKPOINTS = select(*(_COLUMNS[name] for name in Checkpoint._fields)).select_from(
    checkpoint.outerjoin(checkpoint_record, checkpoint_record.c.ino == checkpoint.c.ino)
)
CHECKPOINTS = Statement(_CHECKPOINTS)
OF_RUN = Statement(_CHECKPOINTS.where(checkpoint.c.run == b("run")))
"""Selects the checkpoints of a run, as ``CHECKPOINTS`` does."""
OF_INO = Statement(_CHECKPOINTS.where(checkpoint.c.ino == b("ino")))
RECORD = Statement(
    select(checkpoint_record.c.completion).where(checkpoint_record.c.ino == b("ino"))
)
"""Selects the place of a checkpoint in its run, also if it is in the trash."""
TIMES = Statement(
    select(
        func.min(checkpoint.c.complete_ns),
        func.max(checkpoint.c.complete_ns),
        func.max(checkpoint.c.durable_ns),
    ).where(checkpoint.c.complete_ns >= b("first_ns"))
)
"""Selects the first and the last completion, and when the last one became durable. Parameters:
first_ns, before which no clock was set."""
_OBJECT = (object_.c.key, object_.c.size, object_.c.etag)
_is_present = and_(
    object_.c.ino == inode.c.ino, object_.c.content_version == inode.c.content_version
)
OBJECTS = Statement(
    select(dirent.c.name, inode.c.kind, inode.c.ino, *_OBJECT)
    .select_from(dirent.join(inode, inode.c.ino == dirent.c.ino).outerjoin(object_, _is_present))
    .where(dirent.c.parent == b("parent"), dirent.c.name > b("after"))
    .order_by(dirent.c.name)
    .limit(b("most"))
)
"""Selects what is in a directory, with the objects of the present versions."""
OBJECT = Statement(
    select(*_OBJECT).select_from(inode.join(object_, _is_present)).where(inode.c.ino == b("ino"))
)
IS_MADE = Statement(select(catalogue.c.id))

_newest = (
    select(policy.c.name, func.max(policy.c.version).label("version"))
    .group_by(policy.c.name)
    .subquery("newest")
)
POLICIES = Statement(
    select(policy)
    .select_from(
        policy.join(
            _newest,
            (policy.c.name == _newest.c.name) & (policy.c.version == _newest.c.version),
        )
    )
    .order_by(policy.c.name)
)
"""Selects the version of each policy that is in force."""
HISTORY = Statement(select(policy).order_by(policy.c.name, policy.c.version))
POLICY_INSERT = Statement(insert(policy))

_ADDED = [column.name for column in action.c if column.name != "id"]
ACTION_INSERT = Statement(
    insert(action)
    .from_select(_ADDED, select(*(bindparam(name, type_=action.c[name].type) for name in _ADDED)))
    .returning(action.c.id)
)
ACTION_END = Statement(
    update(action)
    .where(action.c.id == b("the_id"), action.c.finished_ns.is_(None))
    .values(finished_ns=b("at_ns"), result=b("the_result"))
)
UNFINISHED = Statement(select(action).where(action.c.finished_ns.is_(None)))
ACTIONS = Statement(
    select(action).order_by(action.c.began_ns.desc(), action.c.id.desc()).limit(b("most"))
)

ACTIONS_FORGET = Statement(
    delete(action).where(action.c.finished_ns.is_not(None), action.c.began_ns < b("before_ns"))
)

SUPERSEDED = Statement(select(superseded.c.ino))
SUPERSEDED_INSERT = Statement(insert(superseded))
SUPERSEDED_DELETE = Statement(delete(superseded).where(superseded.c.ino == b("the_ino")))

APPROVALS = Statement(select(approval).order_by(approval.c.asked_ns.desc()))
APPROVAL_INSERT = Statement(insert(approval))
APPROVAL_DELETE = Statement(delete(approval).where(approval.c.plan == b("plan")))
APPROVED_VERSIONS = Statement(select(policy_approval.c.name, policy_approval.c.version))
APPROVED_VERSION_INSERT = Statement(insert(policy_approval))

KNOWN_TIME = Statement(
    select(known_time.c.known_ns, known_time.c.boot, known_time.c.uptime_ns).where(
        known_time.c.id == literal_column("1")
    )
)
KNOWN_TIME_DELETE = Statement(delete(known_time))
KNOWN_TIME_INSERT = Statement(insert(known_time))
