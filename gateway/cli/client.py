"""Gateway on another machine, by its admin API (gateway.service.gateway)."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from gateway.cli.api import Api, ApiCall, JobTimeout, follow_events, follow_job, outcome
from gateway.common import clock
from gateway.common.errors import ExportRefused, NotPossible, NotThere, UserError
from gateway.common.models import values_of
from gateway.common.text import encoded, text_of
from gateway.common.types import SetAttr
from gateway.lifecycle.retention import policy
from gateway.lifecycle.retention.policy import Policy
from gateway.nfs.export import require_clients, require_name
from gateway.rpc.statistics import Statistics
from gateway.service import exports, jobs, policies, promotions, reports, tokens, trash
from gateway.service.bucket import Reachability, SetUp
from gateway.service.checkpoints import (
    Checkpoint,
    Listing,
    ListOptions,
    OneCheckpoint,
    Run,
    UnknownDirectory,
    none_at,
    wanted_of,
)
from gateway.service.clients import ClientList, Opens
from gateway.service.configuration import Configuration
from gateway.service.deletion import Deleted
from gateway.service.durability import late
from gateway.service.exports import (
    Export,
    ExportValidity,
    MainExport,
    ReloadedExports,
    RemovedExport,
    Rights,
)
from gateway.service.files import ChangedPath, FileInfo
from gateway.service.jobs import Job, Tell
from gateway.service.names import RemovedTree, is_a_directory, no_directory
from gateway.service.paths import Child, names_of
from gateway.service.pins import Pin, Unpinned
from gateway.service.policies import (
    Action,
    Approval,
    Clock,
    PolicyValidity,
    PolicyVersion,
    RetentionPlan,
    StoredVersion,
)
from gateway.service.promotions import Promotion, PromotionRequest
from gateway.service.queue import QueueOrder, Retried, WaitingFile, Wanted
from gateway.service.records import Event, HistoryTable, NameChange, RecordedCall
from gateway.service.residency import Evicted, Requested, Warmed
from gateway.service.status import Status
from gateway.service.tokens import AddedToken, Caller, MadeToken, TokenInfo
from gateway.service.trash import Emptied, Expired, RemovedCheckpoint, Trashed, Undeleted
from gateway.service.usage import UsageFacts

FILE = ApiCall("GET", "/files", FileInfo)
STATUS = ApiCall("GET", "/status", Status)
STATISTICS = ApiCall("GET", "/statistics", Statistics)
CLIENTS = ApiCall("GET", "/clients", ClientList)
OPENS = ApiCall("GET", "/clients/opens", Opens)
USAGE = ApiCall("GET", "/usage", UsageFacts)
TEST = ApiCall("POST", "/bucket/test", Reachability)
SET_UP = ApiCall("POST", "/bucket/setup", SetUp)
CONFIGURATION = ApiCall("GET", "/configuration", Configuration)
HISTORY = ApiCall("GET", "/history", HistoryTable)
AUDIT = ApiCall("GET", "/audit", RecordedCall)
QUEUE = ApiCall("GET", "/queue", WaitingFile)
ORDERS = ApiCall("GET", "/queue/orders", QueueOrder)
ORDER = ApiCall("PUT", "/queue/orders", QueueOrder)
RELEASE: ApiCall[Any] = ApiCall("DELETE", "/queue/orders")
RETRY = ApiCall("POST", "/queue/retry", Retried)
PINS = ApiCall("GET", "/pins", Pin)
PIN = ApiCall("POST", "/pins", Pin)
UNPIN: ApiCall[Any] = ApiCall("DELETE", "/pins/{ino}")

ASKED_SECONDS = 12.0
"""The time that a gateway has to count its files and to ask its bucket, which may not answer for
ten seconds."""
POLL_SECONDS = 0.2


class RemoteGateway:
    """A gateway on another machine. Args: api, open as long as this is used."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def status(self) -> Status:
        # The first one has the gateway count its files, and ask the bucket.
        status = self._api.ask(STATUS)
        until = clock.monotonic_seconds() + ASKED_SECONDS
        while status.bucket.reachable is None or status.cache.resident is None:
            if clock.monotonic_seconds() > until:
                break
            time.sleep(POLL_SECONDS)
            status = self._api.ask(STATUS)
        return status

    def statistics(self) -> Statistics:
        return self._api.ask(STATISTICS)

    def clients(self) -> ClientList:
        return self._api.ask(CLIENTS)

    def opens(self, path: str) -> Opens:
        return self._api.ask(OPENS, path=encoded(path))

    def usage(self, path: str) -> UsageFacts:
        return self._api.ask(USAGE, path=encoded(path))

    def configuration(self) -> Configuration:
        return self._api.ask(CONFIGURATION)

    def history(self, begin: datetime, end: datetime, step_seconds: int) -> HistoryTable:
        span = {"from": begin.isoformat(), "to": end.isoformat()}
        return self._api.ask(HISTORY, **span, step=step_seconds)

    def audit(
        self,
        most: int,
        who: str | None = None,
        path: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[RecordedCall]:
        times = {"since": _iso(since), "until": _iso(until)}
        return [*self._api.rows(AUDIT, most=most, who=who, path=path, **times)]

    def names_log(self, *_: object, **__: object) -> list[NameChange]:
        raise UserError("audit --names runs on the gateway only: run it there")

    def events(self) -> Generator[Event]:
        return follow_events(self._api)

    @cached_property
    def bucket(self) -> RemoteBucket:
        return RemoteBucket(self._api)

    @cached_property
    def queue(self) -> RemoteQueue:
        return RemoteQueue(self._api)

    @cached_property
    def pins(self) -> RemotePins:
        return RemotePins(self._api)

    @cached_property
    def files(self) -> RemoteFiles:
        return RemoteFiles(self._api)

    @cached_property
    def checkpoints(self) -> RemoteCheckpoints:
        return RemoteCheckpoints(self._api)

    @cached_property
    def trash(self) -> RemoteTrashBin:
        return RemoteTrashBin(self._api)

    @cached_property
    def promotions(self) -> RemotePromotions:
        return RemotePromotions(self._api)

    @cached_property
    def exports(self) -> RemoteExports:
        return RemoteExports(self._api)

    @cached_property
    def policies(self) -> RemotePolicies:
        return RemotePolicies(self._api)

    @cached_property
    def jobs(self) -> RemoteJobs:
        return RemoteJobs(self._api)

    @cached_property
    def tokens(self) -> RemoteTokens:
        return RemoteTokens(self._api)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


class _RemoteNoun:
    """A noun of a gateway on another machine. Args: api, open as long as this is used."""

    def __init__(self, api: Api) -> None:
        self._api = api


class RemoteBucket(_RemoteNoun):
    """``gateway.service.bucket.BucketActions``."""

    def test(self, adopts: bool) -> Reachability:
        if adopts:
            raise UserError("test --adopt is for the machine of the gateway: run it there")
        return self._api.ask(TEST)

    def set_up(self, applies: bool, adopts: bool) -> SetUp:
        return self._api.ask(SET_UP, body={"apply": applies, "adopt": adopts})


class RemoteQueue(_RemoteNoun):
    """``gateway.service.queue.Queue``."""

    def files(self, path: str | None = None, most: int | None = None) -> Iterator[WaitingFile]:
        return self._api.rows(QUEUE, most=most, path=None if path is None else encoded(path))

    def orders(self) -> list[QueueOrder]:
        return self._api.list(ORDERS)

    def order(self, path: str, order: Wanted) -> QueueOrder:
        return self._api.ask(ORDER, body={"path": encoded(path), "order": order})

    def cancel(self, path: str) -> QueueOrder:
        return self.order(path, "hold")

    def release(self, path: str) -> QueueOrder:
        self._api.tell(RELEASE, path=encoded(path))
        return QueueOrder(encoded(path), None)

    def retry(self, path: str) -> Retried:
        return self._api.ask(RETRY, body={"path": encoded(path)})

    def outage(self) -> str | None:
        return reports.outage_of(self._api.ask(STATUS).drain)


class RemotePins(_RemoteNoun):
    """``gateway.service.pins.Pins``."""

    def every(self) -> Iterator[Pin]:
        return self._api.rows(PINS)

    def add(self, path: str, note: str) -> Pin:
        return self._api.ask(PIN, body={"path": encoded(path), "note": note})

    def remove(self, path: str) -> Unpinned:
        ino = self._api.ask(FILE, path=encoded(path)).ino
        self._api.tell(UNPIN, ino)
        return Unpinned(encoded(path), ino)


CHILDREN = ApiCall("GET", "/directories", Child)
MAKE = ApiCall("POST", "/directories", ChangedPath)
SET = ApiCall("POST", "/files/attributes", ChangedPath)
RENAME = ApiCall("POST", "/files/rename", ChangedPath)
REMOVE: ApiCall[Any] = ApiCall("DELETE", "/files")
REMOVE_TREE = ApiCall("DELETE", "/directories", Job)
EVICT = ApiCall("POST", "/files/evict", Job)
WARM = ApiCall("POST", "/files/warm", Job)
WAIT = ApiCall("POST", "/files/wait", Job)


class RemoteFiles(_RemoteNoun):
    """``gateway.service.files.Files``."""

    def get(self, path: str) -> FileInfo:
        return self._api.ask(FILE, path=encoded(path))

    def children(self, path: str, *, details: bool) -> Iterator[Child]:
        return self._api.rows(CHILDREN, path=encoded(path), details=details)

    def make(self, path: str, wanted: SetAttr, *, parents: bool) -> ChangedPath:
        body = {"path": encoded(path), "parents": parents, **_given(wanted)}
        return self._api.ask(MAKE, body=body)

    def set_attributes(self, path: str, wanted: SetAttr) -> ChangedPath:
        return self._api.ask(SET, body={"path": encoded(path), **_given(wanted)})

    def move(self, path: str, target: str, *, is_alone: bool, force: bool) -> ChangedPath:
        to = target
        if self._is_directory(target):
            to = f"{target.rstrip('/')}/{path.rstrip('/').rpartition('/')[2]}"
        elif not is_alone:
            raise no_directory(target)
        body = {"path": encoded(path), "to": encoded(to), "force": force, "replace": True}
        return self._api.ask(RENAME, body=body)

    def _is_directory(self, path: str) -> bool:
        try:
            return self.get(path).kind == "directory"
        except NotThere:
            return False

    def remove(self, path: str, progress: Tell, *, recursive: bool, force: bool) -> RemovedTree:
        file_info = self.get(path)
        query: dict[str, Any] = {"path": encoded(path), "ino": file_info.ino}
        if file_info.kind != "directory":
            self._api.tell(REMOVE, **query)
            return RemovedTree(encoded(path), False, 1, [], {})
        if not recursive:
            raise is_a_directory(path)
        job = self._api.ask(REMOVE_TREE, **query, force=force)
        return outcome(self._api, RemovedTree, job, progress)

    def evict(self, paths: Sequence[str], progress: Tell) -> Evicted:
        job = self._api.ask(EVICT, body={"paths": [*map(encoded, paths)]})
        return outcome(self._api, Evicted, job, progress)

    def request(self, paths: Sequence[str]) -> Requested:
        job = self._api.ask(WARM, body={"paths": [*map(encoded, paths)]})
        return Requested(job.id, None, None, None, None, [])

    def warm(self, paths: Sequence[str], progress: Tell) -> Warmed:
        job = self._api.ask(WARM, body={"paths": [*map(encoded, paths)]})
        return outcome(self._api, Warmed, job, progress)

    def wait(self, path: str, progress: Tell, *, timeout_seconds: float | None = None) -> None:
        job = self._api.ask(WAIT, body={"path": encoded(path)})
        try:
            follow_job(self._api, job, progress, timeout_seconds=timeout_seconds)
        except JobTimeout as exc:
            raise late(path, timeout_seconds or 0.0, str(exc)) from None


def _given(wanted: SetAttr) -> dict[str, Any]:
    """Return what a body says of mode and owner: only what is to be set."""
    mode = None if wanted.mode is None else f"{wanted.mode:04o}"
    given = {"mode": mode, "uid": wanted.uid, "gid": wanted.gid}
    return {name: value for name, value in given.items() if value is not None}


CHECKPOINTS = ApiCall("GET", "/checkpoints", Checkpoint)
CHECKPOINT = ApiCall("GET", "/checkpoints/{ino}", OneCheckpoint)
DELETE_CHECKPOINT = ApiCall("DELETE", "/checkpoints/{ino}", Deleted)
RUNS = ApiCall("GET", "/runs", Run)


class RemoteCheckpoints(_RemoteNoun):
    """``gateway.service.checkpoints.Checkpoints``."""

    def listing(self, options: ListOptions) -> Listing:
        export = self._api.export
        wanted = wanted_of(export, options)
        run = None if wanted.run is None else text_of(wanted.run)
        expired = self._api.rows(TRASH) if options.is_whole else iter(())
        return Listing(
            is_made=self._api.ask(STATUS).catalogue.is_made,
            runs=list(self._api.rows(RUNS, run=run)),
            checkpoints=list(
                self._api.rows(
                    CHECKPOINTS,
                    most=options.most,
                    run=run,
                    state=wanted.state,
                    rule=wanted.rule,
                    text=None if wanted.text is None else text_of(wanted.text),
                    sort=f"-{options.sort}" if options.is_descending else options.sort,
                )
            ),
            expired=[entry for entry in expired if run in (None, entry.run)],
            export=export,
        )

    def unrecognised(self) -> list[UnknownDirectory]:
        raise UserError("checkpoints --unrecognised runs on the gateway only: run it there")

    def one(self, path: str) -> OneCheckpoint:
        ino = self._api.ask(FILE, path=encoded(path)).ino
        try:
            return self._api.ask(CHECKPOINT, ino)
        except NotThere:
            raise none_at(path) from None

    def delete(self, path: str, reason: str | None, *, insists: bool) -> Deleted:
        seen = self.one(path)
        return self._api.ask(
            DELETE_CHECKPOINT, seen.ino, if_version=seen.evidence, force=insists, reason=reason
        )


TRASH = ApiCall("GET", "/trash", Trashed)
UNDELETE = ApiCall("POST", "/trash/{id}/undelete", Undeleted)
RELEASE_TRASHED = ApiCall("POST", "/trash/{id}/release", Trashed)
REMOVE_TRASHED = ApiCall("DELETE", "/trash/{id}", Job)


class RemoteTrashBin(_RemoteNoun):
    """``gateway.service.trash.TrashBin``."""

    def every(self) -> Iterator[Trashed]:
        return self._api.rows(TRASH)

    def find(self, ids: Collection[str] | None = None) -> list[Expired]:
        return trash.with_ids(self.every(), ids)

    def held_at(self, path: str) -> list[Expired]:
        return trash.held_at(self.every(), self._api.export, path)

    def undelete(self, what: str, to: str | None = None) -> Undeleted:
        entry = trash.chosen([*self.every()], self._api.export, what)
        body = {"to": None if to is None else encoded(to)}
        return self._api.ask(UNDELETE, entry.id, body=body)

    def release(self, trash_id: str) -> Trashed:
        return self._api.ask(RELEASE_TRASHED, trash_id)

    def remove(self, one: Expired, progress: Tell) -> RemovedCheckpoint:
        try:
            job = self._api.ask(REMOVE_TRASHED, one.id, if_version=one.version)
        except NotPossible as exc:
            return RemovedCheckpoint(one.id, False, [str(exc)])
        failures = outcome(self._api, Emptied, job, progress).failures
        return RemovedCheckpoint(one.id, not failures, failures)


PROMOTIONS = ApiCall("GET", "/promotions", Promotion)
PROMOTION = ApiCall("GET", "/promotions/{name}", Promotion)
PROMOTE = ApiCall("POST", "/promotions", Promotion)
DEMOTE = ApiCall("DELETE", "/promotions/{name}", Promotion)


class RemotePromotions(_RemoteNoun):
    """``gateway.service.promotions.Promotions``."""

    def every(self) -> Iterator[Promotion]:
        return self._api.rows(PROMOTIONS)

    def named(self, name: str) -> Promotion:
        return self._api.ask(PROMOTION, name)

    def promote(self, request: PromotionRequest, progress: Tell | None = None) -> Promotion:
        path = encoded(request.path)
        if progress is not None:
            follow_job(self._api, self._api.ask(WAIT, body={"path": path}), progress)
        made = self._api.ask(PROMOTE, body={**request._asdict(), "path": path})
        return made if progress is None else promotions.ended(self.named, made, progress, _pause)

    def demote(
        self, one: Promotion, progress: Tell | None = None, *, releases_hold: bool = False
    ) -> Promotion:
        after = self._api.ask(DEMOTE, one.name, if_version=one.version, release_hold=releases_hold)
        if progress is not None:
            promotions.await_removal(self.named, after, progress, _pause)
        return after


def _pause(_then: str) -> None:
    time.sleep(promotions.POLL_SECONDS)


EXPORTS = ApiCall("GET", "/exports", Export)
EXPORT = ApiCall("GET", "/exports/{name}", Export)
NEW_EXPORT = ApiCall("POST", "/exports", Export)
REPLACE_EXPORT = ApiCall("PUT", "/exports/{name}", Export)
VALIDATE_EXPORT = ApiCall("POST", "/exports/validate", ExportValidity)
REMOVE_EXPORT: ApiCall[Any] = ApiCall("DELETE", "/exports/{name}")
RELOAD_EXPORTS = ApiCall("POST", "/exports/reload", ReloadedExports)


class RemoteExports(_RemoteNoun):
    """``gateway.service.exports.Exports``."""

    def main(self) -> MainExport:
        nfs = self._api.ask(CONFIGURATION).sections["nfs"]
        return MainExport(nfs["export"].value, nfs["clients"].value)

    def every(self) -> Iterator[Export]:
        return self._api.rows(EXPORTS)

    def find(self, name: str) -> Export | None:
        try:
            return self._api.ask(EXPORT, _export(name))
        except NotThere:
            return None

    def validate(self, name: str, rights: Rights) -> ExportValidity:
        try:
            body = _rights(name, rights)
        except ExportRefused as exc:
            return ExportValidity(valid=False, error=str(exc))
        return self._api.ask(VALIDATE_EXPORT, body={**body, "name": name})

    def set(self, name: str, rights: Rights, version: int) -> Export:
        body = _rights(name, rights)
        if not version:
            return self._api.ask(NEW_EXPORT, body={**body, "name": name})
        return self._api.ask(REPLACE_EXPORT, _export(name), body=body, if_version=version)

    def remove(self, name: str, version: int) -> RemovedExport:
        self._api.tell(REMOVE_EXPORT, _export(name), if_version=version)
        return RemovedExport(name)

    def reload(self) -> ReloadedExports:
        return self._api.ask(RELOAD_EXPORTS)


def _export(name: str) -> str:
    """Return the name of an export as a part of an address. Raises NotThere."""
    try:
        require_name(name, ())
    except ExportRefused:
        raise exports.missing(name) from None
    return name[1:]


def _rights(name: str, rights: Rights) -> dict[str, Any]:
    """Return the body that has the rights of an export. Raises ExportRefused: the API would not
    take the form of a wrong one as an answer about exports."""
    require_clients(rights.clients, rights.squash)
    require_name(name, ())
    return {
        "path": encoded(rights.path),
        "clients": list(rights.clients),
        "squash": str(rights.squash),
    }


POLICIES = ApiCall("GET", "/policies", PolicyVersion)
POLICY = ApiCall("GET", "/policies/{name}", PolicyVersion)
POLICY_VERSIONS = ApiCall("GET", "/policies/{name}/versions", PolicyVersion)
NEW_POLICY = ApiCall("POST", "/policies", PolicyVersion)
REPLACE_POLICY = ApiCall("PUT", "/policies/{name}", PolicyVersion)
REMOVE_POLICY = ApiCall("DELETE", "/policies/{name}", PolicyVersion)
ENABLE_POLICY = ApiCall("POST", "/policies/{name}/enable", PolicyVersion)
DISABLE_POLICY = ApiCall("POST", "/policies/{name}/disable", PolicyVersion)
PLAN = ApiCall("GET", "/retention/plan", RetentionPlan)
TRY_PLAN = ApiCall("POST", "/retention/plan", RetentionPlan)
VALIDATE_POLICIES = ApiCall("POST", "/retention/validate", PolicyValidity)
APPROVALS = ApiCall("GET", "/retention/approvals", Approval)
APPROVE = ApiCall("POST", "/retention/approvals", Approval)
RETENTION_LOG = ApiCall("GET", "/retention/log", Action)
CLOCK = ApiCall("GET", "/retention/clock", Clock)
CONFIRM_CLOCK = ApiCall("POST", "/retention/clock/confirm", Clock)
PLANNED_MAX = 10_000
"""Checkpoints of one plan, which the API shows at most."""
_PLAN_ID = re.compile("[0-9a-f]{12}")


class RemotePolicies(_RemoteNoun):
    """``gateway.service.policies.Policies``."""

    def every(self) -> Iterator[PolicyVersion]:
        return self._api.rows(POLICIES)

    def history(self) -> Iterator[PolicyVersion]:
        for version in self._api.rows(POLICIES, removed=True):
            yield from self.versions(version.name)

    def versions(self, name: str) -> list[PolicyVersion]:
        return list(self._api.rows(POLICY_VERSIONS, _policy(name)))

    def set(self, given: Sequence[Policy]) -> list[StoredVersion]:
        return [self._store(new_policy.name, dict(new_policy.document)) for new_policy in given]

    def _store(self, name: str, document: dict[str, Any]) -> StoredVersion:
        try:
            before = self._api.ask(POLICY, name)
        except NotThere:
            made = self._api.ask(NEW_POLICY, body=document)
            return StoredVersion(**values_of(made), changed=True)
        after = self._api.ask(REPLACE_POLICY, name, body=document, if_version=before.version)
        return _stored(before, after)

    def remove(self, name: str) -> StoredVersion:
        return self._changed(REMOVE_POLICY, name)

    def switch(self, name: str, *, is_enabled: bool) -> StoredVersion:
        return self._changed(ENABLE_POLICY if is_enabled else DISABLE_POLICY, name)

    def _changed(self, call: ApiCall[PolicyVersion], name: str) -> StoredVersion:
        before = self._api.ask(POLICY, _policy(name))
        return _stored(before, self._api.ask(call, name, if_version=before.version))

    def plan(self, others: Sequence[Policy], run: str | None, fate: str | None) -> RetentionPlan:
        query: dict[str, Any] = {"limit": PLANNED_MAX, "run": self._run(run), "fate": fate}
        if not others:
            return self._api.ask(PLAN, **query)
        documents = [dict(new_policy.document) for new_policy in others]
        return self._api.ask(TRY_PLAN, body={"policies": documents}, **query)

    def approve(self, plan: str) -> Approval:
        if not _PLAN_ID.fullmatch(plan):
            raise policies.no_plan(plan)
        return self._api.ask(APPROVE, body={"plan": plan})

    def approvals(self) -> list[Approval]:
        return self._api.list(APPROVALS)

    def log(self, run: str | None, most: int) -> list[Action]:
        return list(self._api.rows(RETENTION_LOG, most=most, run=self._run(run)))

    def clock(self) -> Clock:
        return self._api.ask(CLOCK)

    def confirm_clock(self) -> Clock:
        return self._api.ask(CONFIRM_CLOCK)

    def validate(self, document: Mapping[str, Any]) -> PolicyValidity:
        validity = policies.validity(document)
        # The gateway may have another version of Spillway. Only what is valid is sure to be JSON.
        return self._api.ask(VALIDATE_POLICIES, body=document) if validity.valid else validity

    def _run(self, run: str | None) -> str | None:
        return None if run is None else text_of(b"/".join(names_of(self._api.export, run)))


def _policy(name: str) -> str:
    """Return the name of a policy as a part of an address. Raises NotThere."""
    if not policy.NAME.fullmatch(name):
        raise NotThere(policies.missing(name))
    return name


def _stored(before: PolicyVersion, after: PolicyVersion) -> StoredVersion:
    return StoredVersion(**values_of(after), changed=after.version != before.version)


JOBS = ApiCall("GET", "/jobs", Job)
JOB = ApiCall("GET", "/jobs/{id}", Job)
CANCEL_JOB = ApiCall("POST", "/jobs/{id}/cancel", Job)
_JOB_ID = re.compile("[0-9a-f]{16}")


class RemoteJobs(_RemoteNoun):
    """``gateway.service.jobs.Jobs``."""

    def every(self, most: int, state: str | None = None, kind: str | None = None) -> Iterator[Job]:
        return self._api.rows(JOBS, most=most, state=state, kind=kind)

    def get(self, id: str) -> Job:
        return self._api.ask(JOB, _job(id))

    def cancel(self, id: str) -> Job:
        return self._api.ask(CANCEL_JOB, _job(id))


def _job(id: str) -> str:
    """Return the id of a job as a part of an address. Raises NotThere."""
    if not _JOB_ID.fullmatch(id):
        raise jobs.missing(id)
    return id


TOKENS = ApiCall("GET", "/tokens", TokenInfo)
NEW_TOKEN = ApiCall("POST", "/tokens", MadeToken)
REVOKE_TOKEN = ApiCall("DELETE", "/tokens/{token_id}", TokenInfo)
SESSION = ApiCall("GET", "/session", Caller)


class RemoteTokens(_RemoteNoun):
    """``gateway.service.tokens.Tokens``."""

    def every(self) -> Iterator[TokenInfo]:
        return self._api.rows(TOKENS)

    def create(self, name: str, role: str, life_seconds: float | None) -> MadeToken:
        seconds = None if life_seconds is None else int(life_seconds)
        body = {"name": name, "role": role, "expires_seconds": seconds}
        return self._api.ask(NEW_TOKEN, body=body)

    def add(self, name: str, token_id: str, hashed: str) -> AddedToken:
        raise UserError("spillway token add runs on the gateway only: run it there")

    def revoke(self, token_id: str) -> TokenInfo:
        if not token_id.isalnum():
            raise tokens.missing(token_id)
        return self._api.ask(REVOKE_TOKEN, token_id)

    def whoami(self) -> Caller:
        return self._api.ask(SESSION)
