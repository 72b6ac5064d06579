"""Every error the gateway raises on purpose, and the only map from an exception to an errno.

    SpillwayError
    ├── UserError                 a person must act; the message is one line and says how
    │   ├── ConfigError           a key of the configuration: it names key and remedy; it quotes
    │   │                         the value, unless that may hold a secret
    │   ├── SchemaError           the database is older or newer than this program
    │   ├── IdentityError         database, data files and bucket do not belong together
    │   ├── AnotherServer         another gateway serves this namespace
    │   ├── PolicyError           a policy that cannot be used: it names policy, key and remedy
    │   ├── ExportRefused         an export cannot be as it is wanted
    │   ├── ExportChanged         an export is not the version that its change was meant for
    │   ├── InUse                 another process of this gateway has the data directory
    │   └── Unreachable           a gateway on another machine (gateway.cli.api)
    ├── StoreError                a request to the bucket failed; the message is one line
    │   │                         is_retryable: it may succeed later, and no person has to act
    │   ├── StoreUnavailable      network, 5xx: try again soon
    │   │   ├── StoreBusy         SlowDown, 429: the request was not taken up
    │   │   ├── StoreSlow         it is at work on a request that may take long
    │   │   └── SignAwaited       a copy of this gateway may still run: it would give a sign
    │   ├── Deferred              it works by itself later: an object is in an archive
    │   │                         not is_retryable: a person must act, and the message says how
    │   ├── StoreRefused          credentials, bucket name, permission: try again slowly
    │   │   └── OtherOwner        the bucket and prefix are not known to be this gateway's
    │   └── ObjectRefused         this one object: missing, not what was recorded, key not taken
    │       ├── Occupied          something is at the key already
    │       ├── ForeignObject     another program's object is at the key
    │       ├── TooLarge          the store takes nothing of this size
    │       └── WrongBytes        the bytes that came are not those that were stored
    ├── NotPossible               what a person asked for cannot be done with this path or thing
    │   ├── NotThere              there is no such path or thing
    │   └── Changed               it is not any more what the caller saw
    ├── ControlSocketClosed       the NFS server, or the connection to it, went away
    ├── TrashRefused              a checkpoint is not as expected: it is not put into the trash
    ├── LeaseLost                 another drain took over this drain's work: stop, publish nothing
    ├── DataFileError             a local data file is missing or not as long as its inode says
    └── NamespaceError            an answer to a client, carries its errno
        ├── NotFound, Exists, NotADirectory, IsADirectory, NotEmpty, AccessDenied, NotPermitted,
        │   NameTooLong, TooManyLinks, NoSpace, NoAttribute, TooBig
        ├── InvalidArgument
        │   └── CrossesItself         a directory would be moved into its own subtree
        ├── ReadOnly              it is reserved: only the gateway changes it
        ├── Busy                  the file is open, or not clean: it cannot be evicted now
        ├── Stale                 the inode is gone: it kills Ganesha's cache entry, no other use
        └── TryAgain              becomes NFS4ERR_DELAY: the client retries by itself
            └── HeldByLatestLink  a link names the checkpoint: it goes first
            (gateway.db.latest_links)

Errors that one package raises and catches itself stand there, directly below the root, and below
OSError or ValueError too where callers catch those (tests/t0_tidy/test_errors.py).

errno values stay within the set that Ganesha's posix2fsal_error knows (FSAL/fsal_convert.c);
anything else would reach the client as SERVERFAULT.
"""

from __future__ import annotations

import errno
from typing import ClassVar

START = "systemctl start spillway.target (without the package: spillway up)"
RESTART = "systemctl restart spillway.target (without the package: restart spillway up)"
"""What a message tells people to do."""


class SpillwayError(Exception):
    """Base of all errors raised on purpose."""


class UserError(SpillwayError):
    """Shown to a person as one line, without a traceback. The message says what to do."""


class ConfigError(UserError):
    """A configuration key that cannot be used.

    Args:
        key: as it is written in the file (``section.key``).
        value: the offending one, which the message quotes, or None where there is none or it may
            hold a secret.
        remedy: what to do about it.
    """

    def __init__(self, key: str, value: object, remedy: str) -> None:
        quoted = "" if value is None else f" = {value!r}"
        super().__init__(f"configuration: {key}{quoted}: {remedy}")
        self.key = key
        self.remedy = remedy


class SchemaError(UserError):
    """The database's schema is not the one this program was built for."""


class IdentityError(UserError):
    """The database, the data files or the bucket are not those that belong together."""


class AnotherServer(UserError):
    """Another NFS server has the namespace. The message names it."""


class PolicyError(UserError):
    """A policy of retention that cannot be used as it was written."""


class ExportRefused(UserError):
    """An export cannot be as it is wanted. Nothing was changed."""


class ExportChanged(UserError):
    """An export is not the version that its change was meant for. Nothing was changed."""


class InUse(UserError):
    """Another process has the data directory.

    Args:
        holder: the name of the process.
        pid: both as they are in the lock.
        stop: the command that ends it (default: kill).
    """

    def __init__(self, directory: object, holder: str, pid: str, stop: str | None = None) -> None:
        super().__init__(
            f"another {holder} (pid {pid}) runs on {directory}: stop it first: "
            f"{stop or f'kill {pid}'}"
        )
        self.holder = holder
        self.pid = pid


class StoreError(SpillwayError):
    """A request to the bucket failed. The message is one line that a person can be shown."""

    is_retryable: ClassVar[bool] = False
    """Whether the same request may succeed later by itself. If not, a person must act first."""


class StoreUnavailable(StoreError):
    """The object store does not answer, or answers that it cannot now. Trying again may help."""

    is_retryable = True


class StoreBusy(StoreUnavailable):
    """The object store answered that it takes up no more requests now. So this one, which was sent
    once, changed nothing and cannot change anything later."""


class StoreSlow(StoreUnavailable):
    """The object store took a request that may take long (a copy, the completion of an upload), and
    did not answer in time. It may still carry it out. This says nothing of other requests."""


class SignAwaited(StoreUnavailable):
    """A copy of this gateway may still run. Nothing is sent until it would have given a sign. The
    message says for how long."""


class Deferred(StoreError):
    """What was asked of the object store cannot be done yet, and what it waits for has been begun.
    It says nothing of the store."""

    is_retryable = True


class StoreRefused(StoreError):
    """The object store refuses every request. A person must act, so tries may be rare."""


class OtherOwner(StoreRefused):
    """The bucket and prefix belong to another gateway, or are not known to be this one's. Nothing
    is written there. The message names who has it, and the remedy."""


class ObjectRefused(StoreError):
    """The object store works, but not for this object. The work on other objects continues."""


class Occupied(ObjectRefused):
    """Something is at a key at which nothing, or another object, was expected. It is unchanged."""


class ForeignObject(ObjectRefused):
    """Another program's object has the key. It stays, and what is to be there waits."""


class TooLarge(ObjectRefused):
    """The object, or a part of it, is larger than the store takes. To send it again has a cost, and
    the same answer."""


class WrongBytes(ObjectRefused):
    """The bytes that came are not those that were stored: their digest differs."""


class DataFileError(SpillwayError):
    """The local bytes of a file are not what its inode says. They must not be uploaded."""


class NotPossible(SpillwayError):
    """What a person asked for cannot be done with this path or thing. Others are not concerned. The
    message is one line: why, and what to do."""


class NotThere(NotPossible):
    """There is nothing with the path, name or number that a person wrote."""


class Changed(NotPossible):
    """Something is not any more what the caller saw. Nothing was done to it."""


class ControlSocketClosed(SpillwayError):
    """The NFS server went away during requests: it is not known which of them were done."""


class TrashRefused(SpillwayError):
    """A checkpoint is not what it was when its deletion was decided, or cannot be taken back. It
    stays where it is. The message is one line."""


class LeaseLost(SpillwayError):
    """The drain's lease ran out and was taken over. Its work belongs to another drain now."""


class NamespaceError(SpillwayError):
    """An answer to a client. ``errno`` is what the bridge hands to Ganesha."""

    errno: int = errno.EIO


class NotFound(NamespaceError):
    errno = errno.ENOENT


class Exists(NamespaceError):
    errno = errno.EEXIST


class NotADirectory(NamespaceError):
    errno = errno.ENOTDIR


class IsADirectory(NamespaceError):
    errno = errno.EISDIR


class NotEmpty(NamespaceError):
    errno = errno.ENOTEMPTY


class AccessDenied(NamespaceError):
    errno = errno.EACCES


class NotPermitted(NamespaceError):
    errno = errno.EPERM


class ReadOnly(NamespaceError):
    """It is reserved for the gateway (gateway.namespace.reserved)."""

    errno = errno.EROFS


class InvalidArgument(NamespaceError):
    errno = errno.EINVAL


class CrossesItself(InvalidArgument):
    """A directory would be moved into its own subtree."""


class NameTooLong(NamespaceError):
    errno = errno.ENAMETOOLONG


class TooManyLinks(NamespaceError):
    errno = errno.EMLINK


class NoSpace(NamespaceError):
    errno = errno.ENOSPC


class NoAttribute(NamespaceError):
    """There is no such extended attribute."""

    errno = errno.ENODATA


class TooBig(NamespaceError):
    """The value of an extended attribute is larger than the gateway can keep."""

    errno = errno.ERANGE


class Busy(NamespaceError):
    """The file is open, or its bytes are not safe in the bucket. It cannot be evicted now."""

    errno = errno.EBUSY


class Stale(NamespaceError):
    errno = errno.ESTALE


class TryAgain(NamespaceError):
    errno = errno.EAGAIN


def errno_of(exc: BaseException) -> int:
    """Return the errno that a client gets for an exception. An unknown exception becomes EIO."""
    return exc.errno if isinstance(exc, NamespaceError) else errno.EIO
