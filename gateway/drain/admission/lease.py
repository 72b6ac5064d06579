"""Lease of a drain, and the claims of its jobs: which drain may work on what.

A lease is a row for one run of a drain: its process (owner), a number that no other lease has, and
a time when it expires. Claims (inodes and keys) belong to a lease. One statement renews all of
them, and one transaction makes or gives back many. So two drains on one database share the work.
Within a process, threads exclude each other in memory.

A takeover deletes a lease and its claims, when the lease has expired, or at once when its process
is known to be dead: ``owner`` names a process so that no other can be taken for it. Every
transaction of a job looks for its lease (context.py): a drain that was paused for too long finds it
gone (LeaseLost) and publishes nothing. A request that was under way in that moment cannot be called
back, so tidy/indeterminate.py looks at what it did.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from gateway.common import clock
from gateway.common.errors import LeaseLost, NamespaceError
from gateway.common.process import here, start_ticks
from gateway.db.compiled import rows_of
from gateway.drain import statements as own
from gateway.drain.admission.retries import Retries
from gateway.drain.context import Context, DrainView
from gateway.drain.job import DrainJob, JobId
from gateway.drain.statements import claim_name


def owner(pid: int) -> str:
    """Return the name of a process for all time: machine since its boot, PID namespace, PID,
    start."""
    return f"{here()} {pid} {start_ticks(pid)}"


def pid_of(holder: str) -> str:
    return holder.split()[-2]


def is_dead(holder: str) -> bool:
    """Return whether an owner is known to have ended. Nothing is known of one on another
    machine."""
    place, pid, ticks = holder.rsplit(" ", 2)
    return place == here() and ticks != str(start_ticks(int(pid)))


log = logging.getLogger("drain")

RENEWALS = 3
"""The renewals in the time that a lease lasts."""


class Claims:
    """The lease of this drain and what it has claimed.

    Args:
        context: whose lease is not used.
        retries: saved with the claims.
        on_lost: called when the lease is found lost.
        on_drains: called with the number of drains that have a lease.
    """

    def __init__(
        self,
        context: Context,
        retries: Retries,
        on_lost: Callable[[], None],
        on_drains: Callable[[int], None],
    ) -> None:
        self._context = replace(context, lease=None)
        self._retries = retries
        self._on_lost = on_lost
        self._on_drains = on_drains
        self._seconds = context.settings.drain.lease_seconds
        self._lock = threading.Lock()
        self._busy: set[int | str] = set()
        self._needed: Counter[int | str] = Counter()
        """How many planned and running jobs need each claimed name."""
        self._spare: set[int | str] = set()
        """The names that are claimed, and that no job needs any more."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever, name="drain-lease")
        self._thread.daemon = True
        self._others: dict[int, tuple[int, float]] = {}
        """The leases of other drains: when each ends, and since when (monotonic) that has not
        changed."""
        self.lease = 0
        """The number of the lease, or 0 if there is none."""

    def enter(self) -> int:
        """Begin a lease. Returns its number. Raises NamespaceError."""
        lease = secrets.randbits(62) | 1
        with self._context.writing() as view:
            others = self._take_over(view)
            view.session.run(
                own.LEASE_INSERT,
                id=lease,
                owner=owner(os.getpid()),
                expires_ns=self._until_ns(),
            )
            self._retries.load(view.session)
        self._on_drains(others + 1)
        with self._lock:
            self.lease = lease
            self._needed.clear()
            self._spare.clear()
        if not self._thread.is_alive():
            self._thread.start()
        return lease

    def leave(self) -> None:
        """End the lease. Nothing may run under it any more."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(NamespaceError, LeaseLost):
            self.claim([])
            with self._context.writing() as view:
                view.session.run(own.LEASE_DELETE, the_lease=self.lease)
        self.lease = 0

    def claim(self, jobs: Sequence[DrainJob]) -> list[DrainJob]:
        """Claim what jobs need, and give back what none needs. Returns the jobs that may run.

        Raises NamespaceError, LeaseLost. Then nothing was claimed.
        """
        with self._lock:
            needed = {name for job in jobs for name in job.claims}
            missing = needed - self._needed.keys() - self._spare
            dropped = self._spare - needed
            self._spare -= dropped
        unsaved = self._retries.take_unsaved()
        taken: set[int | str] = set()
        if missing or dropped or unsaved:
            try:
                taken = self._write(missing, dropped, unsaved)
            except BaseException:
                self._retries.give_back(unsaved)
                with self._lock:
                    self._spare |= dropped
                raise
        granted = [job for job in jobs if job.claims.isdisjoint(taken)]
        with self._lock:
            self._spare |= missing - taken
            for job in granted:
                self._needed.update(job.claims)
                self._spare -= job.claims
        return granted

    def is_lost(self, lease: int) -> bool:
        """Return whether a lease is known to have been taken over."""
        try:
            with replace(self._context, lease=lease).reading():
                return False
        except LeaseLost:
            return True
        except NamespaceError:
            return False

    def take(self, job: DrainJob) -> bool:
        """Keep other threads off what a claimed job needs. Returns False if a thread works on
        it."""
        with self._lock:
            if not self._busy.isdisjoint(job.claims):
                return False
            self._busy |= job.claims
            return True

    def is_busy(self, name: int | str) -> bool:
        """Return whether a thread of this drain works on an inode or a key."""
        with self._lock:
            return name in self._busy

    def ended(self, job: DrainJob, lease: int) -> None:
        """Note that a job that was taken has ended."""
        with self._lock:
            self._busy -= job.claims
        self.drop(job, lease)

    def drop(self, job: DrainJob, lease: int) -> None:
        """Note that a job needs its claims no more.

        Args:
            lease: under which they were claimed.
        """
        with self._lock:
            if lease != self.lease:
                return
            for name in job.claims:
                self._needed[name] -= 1
                if self._needed[name] <= 0:
                    del self._needed[name]
                    self._spare.add(name)

    def _write(
        self, missing: set[int | str], dropped: set[int | str], unsaved: set[JobId]
    ) -> set[int | str]:
        """Write the claims in one transaction. Returns the names that another drain has."""
        lease = self.lease
        taken: set[int | str] = set()
        with replace(self._context, lease=lease).writing() as view:
            session = view.session
            if dropped:
                names = _given(dropped)
                session.run(own.CLAIM_DELETE, names=names, the_lease=lease)
            if missing:
                names = _given(missing)
                session.run(own.CLAIM_INSERT, names=names, the_lease=lease)
                by_name = {claim_name(name): name for name in missing}
                others = session.all(own.CLAIMED_BY_OTHERS, names=names, the_lease=lease)
                taken = {by_name[name] for (name,) in others}
            self._retries.save(session, unsaved)
        return taken

    def _renew_for_ever(self) -> None:
        while not self._end.wait(self._seconds / RENEWALS):
            try:
                self._renew()
            except NamespaceError as exc:
                log.warning("cannot renew the lease: %s", exc)

    def _renew(self) -> None:
        lease = self.lease
        with self._context.writing() as view:
            renewed = view.session.run(own.LEASE_RENEW, the_lease=lease, until_ns=self._until_ns())
            others = self._take_over(view)
        self._on_drains(others + 1)
        if not renewed and lease == self.lease:
            self._on_lost()

    def _take_over(self, view: DrainView) -> int:
        """Delete leases that expired or whose holder is dead. Returns the number of other leases
        left."""
        others = 0
        now_ns = clock.now_ns()
        for lease, holder, expires_ns in view.session.all(own.LEASES):
            dead = is_dead(holder)
            if lease == self.lease:
                continue
            if not dead and expires_ns >= now_ns and self._is_renewed(lease, expires_ns):
                others += 1
                continue
            self._others.pop(lease, None)
            for key, ino in view.session.all(own.CLAIMED_TOMBSTONES, the_lease=lease):
                # The store may still carry out the deletion, after the next file was sent there.
                view.mark_indeterminate(key, ino)
            view.session.run(own.LEASE_DELETE, the_lease=lease)
            reason = "is dead" if dead else "did not renew it"
            log.warning("took over from the drain of process %s, which %s", pid_of(holder), reason)
        return others

    def _is_renewed(self, lease: int, expires_ns: int) -> bool:
        """Return whether a lease was renewed within the time that one lasts, by this machine's
        monotonic clock. Where the clock was set back, the lease's own time says nothing for the
        length of the step."""
        now = clock.monotonic_seconds()
        before = self._others.get(lease)
        if before is None or before[0] != expires_ns:
            self._others[lease] = (expires_ns, now)
            return True
        return now - before[1] <= self._seconds

    def _until_ns(self) -> int:
        return clock.now_ns() + int(self._seconds * clock.NS)


def _given(names: set[int | str]) -> str:
    return rows_of([(claim_name(name),) for name in names])
