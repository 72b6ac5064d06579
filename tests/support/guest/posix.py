"""Guest program that checks the behaviour that POSIX programs rely on: ``posix.py DIRECTORY``.

Each check is a function that asserts. The program prints a JSON object with "ok" or the error for
each check. A check that needs an ordinary user forks a child with uid 1000.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

USER = 1000
GIB = 1 << 30


@contextmanager
def refused(*codes: int) -> Iterator[None]:
    """Require that the block fails with one of these errnos."""
    try:
        yield
    except OSError as exc:
        assert exc.errno in codes, f"{errno.errorcode.get(exc.errno or 0)} is not the right error"
        return
    raise AssertionError("was not refused")


def as_user(call: Callable[[], None], uid: int = USER) -> None:
    """Run a check in a child process as an ordinary user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            call()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _pid, status = os.waitpid(pid, 0)
    assert status == 0, "the user's part failed"


def write_drops_suid_and_sgid() -> None:
    path = Path("suid")
    path.write_bytes(b"x")
    path.chmod(0o6777)

    def change() -> None:
        with path.open("r+b") as file:
            file.write(b"changed")

    as_user(change)
    assert path.stat().st_mode & 0o7777 == 0o777
    path.chmod(0o6777)
    as_user(lambda: os.truncate(path, 1))
    assert path.stat().st_mode & 0o7777 == 0o777
    path.chmod(0o6777)
    path.write_bytes(b"root may")
    assert path.stat().st_mode & 0o7777 == 0o6777


def chown_drops_suid() -> None:
    path = Path("owned")
    path.write_bytes(b"x")
    os.chown(path, USER, USER)
    path.chmod(0o4755)
    as_user(lambda: os.chown(path, -1, USER))
    assert path.stat().st_mode & 0o7777 == 0o755


def permissions_hold() -> None:
    Path("private").mkdir(0o700)
    Path("private/f").write_bytes(b"secret")
    Path("readonly").write_bytes(b"x")
    Path("readonly").chmod(0o644)

    def intrude() -> None:
        with refused(errno.EACCES):
            os.listdir("private")
        with refused(errno.EACCES):
            os.open("private/f", os.O_RDONLY)
        with refused(errno.EACCES):
            os.open("readonly", os.O_WRONLY)
        # A second OPEN asks the server to widen the access of the same open owner.
        fd = os.open("readonly", os.O_RDONLY)
        with refused(errno.EACCES):
            os.open("readonly", os.O_WRONLY)
        with refused(errno.EACCES):
            os.open("readonly", os.O_RDWR)
        os.close(fd)
        with refused(errno.EPERM):
            os.chmod("readonly", 0o777)

    as_user(intrude)


def a_file_is_writable_by_its_opener_whatever_its_mode() -> None:
    fd = os.open("mode0", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0)
    os.write(fd, b"still mine")
    os.fsync(fd)
    os.close(fd)
    assert Path("mode0").read_bytes() == b"still mine"


def append_from_several_processes_loses_nothing() -> None:
    # All processes are on one client, whose kernel serialises the appends.
    pids = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            with open("log", "ab", buffering=0) as file:
                for index in range(50):
                    file.write(b"%d-%02d\n" % (number, index))
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    lines = Path("log").read_text().split()
    assert len(lines) == len(set(lines)) == 200


def unlinked_files_stay_readable() -> None:
    with open("gone", "w+b") as file:
        file.write(b"here")
        file.flush()
        os.unlink("gone")
        assert not Path("gone").exists()
        file.seek(0)
        assert file.read() == b"here"
        file.write(b" still")
        file.flush()
        os.fsync(file.fileno())
        assert os.fstat(file.fileno()).st_size == 10


def files_renamed_over_stay_readable() -> None:
    Path("old").write_bytes(b"old")
    Path("new").write_bytes(b"new")
    with open("old", "rb") as file:
        os.rename("new", "old")
        assert file.read() == b"old"
    assert Path("old").read_bytes() == b"new"


def renames_follow_the_types() -> None:
    for name in ("d1", "d2", "d1/full"):
        Path(name).mkdir()
    Path("f1").write_bytes(b"1")
    with refused(errno.EISDIR):
        os.rename("f1", "d2")
    with refused(errno.ENOTDIR):
        os.rename("d2", "f1")
    with refused(errno.ENOTEMPTY, errno.EEXIST):
        os.rename("d2", "d1")
    with refused(errno.EINVAL):
        os.rename("d1", "d1/full/below")
    os.rename("d1", "d2")
    assert os.listdir("d2") == ["full"]
    os.link("f1", "f2")
    os.rename("f1", "f2")  # both are names of one inode, so nothing happens
    assert Path("f1").stat().st_nlink == 2


def links_and_special_files() -> None:
    os.symlink("t" * 1000, "long-link")
    assert os.readlink("long-link") == "t" * 1000
    os.mkfifo("fifo", 0o600)
    os.mknod("device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    assert stat.S_ISFIFO(os.lstat("fifo").st_mode)
    assert os.lstat("device").st_rdev == os.makedev(1, 3)
    with refused(errno.EPERM):
        os.link(".", "directory-link")
    Path("many").write_bytes(b"")
    for index in range(100):
        os.link("many", f"many-{index}")
    assert Path("many").stat().st_nlink == 101


def names_are_bytes() -> None:
    for name in (b"n" * 255, bytes(range(1, 47)) + b"\xff\xfe", "größe 検査".encode(), b" ", b"\\"):
        Path(os.fsdecode(name)).write_bytes(name)
        assert name in os.listdir(b".")
        assert Path(os.fsdecode(name)).read_bytes() == name
    with refused(errno.ENAMETOOLONG):
        Path("n" * 256).touch()


def sparse_files_over_five_gib() -> None:
    with open("sparse", "w+b") as file:
        file.seek(5 * GIB + 17)
        file.write(b"end")
        file.flush()
        os.fsync(file.fileno())
        status = os.fstat(file.fileno())
        assert status.st_size == 5 * GIB + 20
        assert status.st_blocks * 512 < GIB
        file.seek(3 * GIB)
        assert file.read(4096) == bytes(4096)
        file.truncate(10)
    assert Path("sparse").stat().st_size == 10
    os.truncate("sparse", 5000)
    assert Path("sparse").read_bytes() == bytes(5000)


def times_are_kept_to_the_nanosecond() -> None:
    Path("timed").write_bytes(b"x")
    os.utime("timed", ns=(1_234_567_890_123_456_789, 1_600_000_000_987_654_321))
    status = Path("timed").stat()
    assert status.st_atime_ns == 1_234_567_890_123_456_789
    assert status.st_mtime_ns == 1_600_000_000_987_654_321
    with open("timed", "r+b") as file:
        os.utime("timed", ns=(1, 2))
        assert os.fstat(file.fileno()).st_mtime_ns == 2
        file.write(b"later")
    assert Path("timed").stat().st_mtime_ns > 1_600_000_000_000_000_000


def times_set_after_a_close_stay() -> None:
    """Set times as rsync, tar and cp -p do, while the server seals the files."""
    mtime_ns = 1_600_000_000_987_654_321
    names = [f"copied-{number}" for number in range(300)]
    for name in names:
        Path(name).write_bytes(b"x")
        os.utime(name, ns=(mtime_ns, mtime_ns))
    found = []
    for name in names:
        with open(name) as file:  # an open asks the server for the attributes
            found.append(os.fstat(file.fileno()).st_mtime_ns)
    assert [name for name, ns in zip(names, found, strict=True) if ns != mtime_ns] == []


def locks_exclude() -> None:
    with open("locked", "w+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
        pid = os.fork()
        if pid == 0:
            with open("locked", "r+b") as other:
                fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
                try:
                    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
                except BlockingIOError:
                    os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0


def shared_mappings_reach_the_file() -> None:
    Path("mapped").write_bytes(bytes(8192))
    with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 8192) as mapping:
        mapping[4096:4101] = b"there"
        mapping.flush()
    assert Path("mapped").read_bytes()[4096:4101] == b"there"


def setgid_directories_hand_on_their_group() -> None:
    Path("shared").mkdir()
    os.chown("shared", 0, 4242)
    os.chmod("shared", 0o2777)
    as_user(lambda: Path("shared/sub").mkdir())
    status = Path("shared/sub").stat()
    assert (status.st_gid, status.st_uid) == (4242, USER)
    assert status.st_mode & stat.S_ISGID


def sticky_directories_protect() -> None:
    Path("sticky").mkdir()
    os.chmod("sticky", 0o1777)
    Path("sticky/mine").write_bytes(b"x")

    def intrude() -> None:
        with refused(errno.EPERM, errno.EACCES):
            os.unlink("sticky/mine")

    as_user(intrude)


def exclusive_creation_is_exclusive() -> None:
    os.close(os.open("once", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    with refused(errno.EEXIST):
        os.open("once", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def statfs_tells_the_truth() -> None:
    disk = os.statvfs(".")
    assert 0 < disk.f_bavail <= disk.f_bfree <= disk.f_blocks
    assert disk.f_namemax == 255


CHECKS = [
    value
    for name, value in list(globals().items())
    if callable(value)
    and getattr(value, "__module__", "") == __name__
    and name not in ("refused", "as_user")
]


def main() -> None:
    root = Path(sys.argv[1])
    results = {}
    for check in CHECKS:
        place = root / check.__name__
        place.mkdir()
        place.chmod(0o777)
        os.chdir(place)
        try:
            check()
        except Exception:
            # One check that fails must not hide the others.
            results[check.__name__] = traceback.format_exc()
        else:
            results[check.__name__] = "ok"
    print(json.dumps(results))


if __name__ == "__main__":
    main()
