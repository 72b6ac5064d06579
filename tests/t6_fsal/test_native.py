"""The C side: its layout, its bytes and writers under sanitizers, and its embedded interpreter."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from fsal import bridge
from gateway.common.types import Attr
from gateway.config import loader
from gateway.config.settings import Settings
from gateway.namespace.data_files import DataFiles

NATIVE = Path(__file__).parents[2] / "fsal" / "native"
HERE = Path(__file__).parent / "native"
GANESHA_HEADERS = NATIVE.parents[1] / "build" / "ganesha" / "include"
WARNINGS = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror"]

STRUCTS = {
    "spw_attr": bridge.AttrStruct,
    "spw_setattr": bridge.SetAttrStruct,
    "spw_sealed": bridge.SealedStruct,
    "spw_seal": bridge.SealStruct,
    "spw_orphan": bridge.OrphanStruct,
    "spw_read": bridge.ReadStruct,
    "spw_used": bridge.UsedStruct,
    "spw_space": bridge.SpaceStruct,
    "spw_item": bridge.ItemStruct,
    "spw_removed": bridge.RemovedStruct,
    "spw_dirent": bridge.DirentStruct,
    "spw_request": bridge.RequestStruct,
    "spw_reply": bridge.ReplyStruct,
    "spw_table": bridge.TableStruct,
}


def build(output: Path, *sources: Path, flags: list[str]) -> Path:
    libraries = [flag for flag in flags if flag.startswith("-l")]
    subprocess.run(
        ["gcc", *WARNINGS, f"-I{NATIVE}", *flags, "-o", output, *sources, "-lpthread", *libraries],
        check=True,
    )
    return output


def test_both_sides_have_the_same_layout(tmp_path: Path) -> None:
    lines = []
    for name, mirror in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field in mirror._fields_:
            lines.append(
                f'printf("{name}.{field[0]} %zu\\n", offsetof(struct {name}, {field[0]}));'
            )
    source = tmp_path / "layout.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "bridge.h"\n'
        f"int main(void) {{ {' '.join(lines)} return 0; }}\n"
    )
    program = build(tmp_path / "layout", source, flags=[])
    theirs = dict(
        line.split() for line in subprocess.check_output([program], text=True).splitlines()
    )
    ours = {name: str(ctypes.sizeof(mirror)) for name, mirror in STRUCTS.items()}
    for name, mirror in STRUCTS.items():
        for field in mirror._fields_:
            ours[f"{name}.{field[0]}"] = str(getattr(mirror, field[0]).offset)
    assert theirs == ours


def test_attributes_arrive_in_their_fields() -> None:
    values = range(11, 11 + len(Attr._fields))
    reply = bridge.ReplyStruct(dirty_bytes=7)
    bridge.put_attr(reply.parent2, Attr(*values))
    for name, value in zip(Attr._fields, values, strict=True):
        assert getattr(reply.parent2, name) == value, name
    extremes = Attr(*[0] * len(Attr._fields))._replace(
        generation=2**62 - 1, change=2**64 - 1, mtime_ns=-1, uid=2**32 - 1
    )
    bridge.put_attr(reply.parent2, extremes)
    assert [getattr(reply.parent2, name) for name in Attr._fields] == list(extremes)
    assert reply.dirty_bytes == 7 and reply.parent.ino == 0 and reply.removed.ino == 0


def test_operations_are_in_the_order_of_the_header() -> None:
    body = re.search(r"enum spw_op \{(.*?)\};", (NATIVE / "bridge.h").read_text(), re.DOTALL)
    assert body is not None
    names = re.findall(r"^\tSPW_(\w+)", body[1], re.MULTILINE)
    assert [name.removesuffix("_OP").lower() for name in names[:-1]] == list(bridge.OPERATIONS)


SANITIZERS = pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])


def run_suite(
    directory: Path,
    suite: str,
    sources: tuple[str, ...],
    sanitizer: str,
    *flags: str,
    root: str = "",
) -> None:
    """Build a program of tests with its sources and a sanitizer, and run it."""
    program = build(
        directory / suite,
        HERE / f"{suite}.c",
        *(NATIVE / source for source in sources),
        flags=["-O1", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", *flags],
    )
    # This compiler's thread sanitizer fails with the address randomisation of newer kernels.
    command = ["setarch", "-R", str(program), *([root] if root else [])]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "all passed\n"


INODE_SOURCES = (
    "bytes.c", "closing.c", "cold.c", "cold_requests.c", "damage.c", "fd.c", "inode.c", "lost.c",
    "namespace.c", "queue.c", "reads.c", "residency.c", "seal.c", "space.c", "sync.c",
    "writer.c",
)  # fmt: skip
INODE_FLAGS = (
    "-Wl,--wrap=fdatasync,--wrap=fsync",
    "-DSPW_COLD_RETRY_MS=1500",
    "-DSPW_CLOSING_ABANDONED_MS=2500",
    "-DSPW_LOST_AGAIN_MS=1000",
)
WRAPPED = {
    "test_data_file": ("openat",),
    "test_evict": ("spw_fd_get_to_read",),
    "test_lost": ("spw_fd_get_to_read", "preadv", "pread"),
}
"""The functions that a suite replaces, beside those of all suites."""


@SANITIZERS
@pytest.mark.parametrize(
    "suite",
    [
        *("test_inode", "test_seal", "test_orphan", "test_data_file", "test_damage"),
        *("test_cold", "test_evict", "test_reads", "test_session", "test_closing", "test_lost"),
    ],
)
def test_bytes_and_writers(tmp_path: Path, suite: str, sanitizer: str) -> None:
    files = DataFiles(tmp_path / "files")
    files.create()
    flags = [f"-Wl,--wrap={name}" for name in WRAPPED.get(suite, ())]
    run_suite(tmp_path, suite, INODE_SOURCES, sanitizer, *INODE_FLAGS, *flags, root=str(files.root))


def test_open_states_are_closed_before_they_are_freed(tmp_path: Path) -> None:
    files = DataFiles(tmp_path / "files")
    files.create()
    headers = ["-isystem", str(GANESHA_HEADERS), "-isystem", "/usr/include/ntirpc"]
    sources = (*INODE_SOURCES, "clients.c", "opened.c", "opening.c", "openstate.c")
    sanitizer = "address,undefined"
    flags = [*INODE_FLAGS, *headers]
    run_suite(tmp_path, "test_openstate", sources, sanitizer, *flags, root=str(files.root))


@SANITIZERS
def test_room_is_shared_and_never_overdrawn(tmp_path: Path, sanitizer: str) -> None:
    run_suite(tmp_path, "test_space", ("space.c",), sanitizer, "-DSPW_WAIT_MS=0")


@SANITIZERS
def test_calls_that_wait_are_gathered(tmp_path: Path, sanitizer: str) -> None:
    run_suite(tmp_path, "test_call", ("call.c",), sanitizer, "-DSPW_WAITING_MAX=20")


@SANITIZERS
def test_new_directories_know_what_they_lack(tmp_path: Path, sanitizer: str) -> None:
    run_suite(tmp_path, "test_fresh", ("fresh.c",), sanitizer)


@SANITIZERS
def test_names_are_remembered_and_never_wrong(tmp_path: Path, sanitizer: str) -> None:
    run_suite(tmp_path, "test_dentry", ("dentry.c",), sanitizer)


@SANITIZERS
def test_no_operation_is_lost_from_the_counts(tmp_path: Path, sanitizer: str) -> None:
    run_suite(tmp_path, "test_statistics", ("statistics.c",), sanitizer)


@SANITIZERS
def test_locks_wait_in_their_order_and_not_for_long(tmp_path: Path, sanitizer: str) -> None:
    limits = ("-DSPW_LOCK_WAIT_MS=800u", "-DSPW_LOCK_TURN_MS=200u", "-DSPW_LOCK_WAITERS_MAX=4u")
    run_suite(tmp_path, "test_lockwait", ("lockwait.c",), sanitizer, *limits)


@SANITIZERS
def test_a_close_takes_no_state_that_is_opened_again(tmp_path: Path, sanitizer: str) -> None:
    run_suite(tmp_path, "test_opening", ("opening.c",), sanitizer, "-DSPW_OPENING_MS=300u")


@SANITIZERS
def test_clients_and_what_they_have_open_are_counted(tmp_path: Path, sanitizer: str) -> None:
    sources = ("clients.c", "opened.c")
    run_suite(tmp_path, "test_clients", sources, sanitizer, "-DSPW_CLIENTS_MAX=64u")


def test_names_that_two_machines_share_are_found(tmp_path: Path) -> None:
    run_suite(tmp_path, "test_shared", ("shared.c",), "address,undefined", "-DSPW_SHARED_SETS=16u")


def test_frames_of_the_control_socket_are_not_believed(tmp_path: Path) -> None:
    run_suite(tmp_path, "test_control_frame", ("control_frame.c",), "address,undefined")


@SANITIZERS
@pytest.mark.parametrize("suite", ["test_control", "test_control_told", "test_control_rubbish"])
def test_nobody_at_the_control_socket_holds_others_up(
    tmp_path: Path, suite: str, sanitizer: str
) -> None:
    sources = ("control.c", "control_frame.c", "control_peer.c")
    # Addresses of sockets are short.
    with tempfile.TemporaryDirectory(prefix="control") as directory:
        run_suite(
            tmp_path, suite, sources, sanitizer, "-DSPW_CONTROL_STALL_MS=1000", root=directory
        )


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = sysconfig.get_config_var("INSTSONAME")
    return build(
        tmp_path_factory.mktemp("host") / "host",
        HERE / "host.c",
        NATIVE / "python.c",
        NATIVE / "call.c",
        flags=[
            "-O2",
            f"-I{sysconfig.get_path('include')}",
            f'-DSPW_LIBPYTHON="{library}"',
            f"-lpython{sysconfig.get_config_var('LDVERSION')}",
        ],
    )


def run_host(host: Path, configuration: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [host, sys.executable, configuration], capture_output=True, text=True, timeout=60
    )


def test_threads_that_come_and_go_reach_the_namespace(host: Path, settings: Settings) -> None:
    settings.source.write_text(
        loader.render(
            {
                "gateway": {"data_dir": settings.data_dir},
                "bucket": {"name": "b"},
                "namespace": {"url": settings.database_url},
            }
        )
    )
    run = run_host(host, settings.source)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "480 entries, start 1\n"
    # The exception that became EIO was logged once, with its traceback.
    assert run.stderr.count("getattr failed\nTraceback") == 1


def test_a_start_that_cannot_work_says_why(host: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "spillway.toml"
    configuration.write_text('[gateway]\ndata_dir = "/nonexistent"\n[bucket]\nname = "b"\n')
    run = run_host(host, configuration)
    assert run.returncode == 3
    assert run.stderr == (
        "spillway: no database at /nonexistent/namespace.db: mount its disk or put its backup "
        "back; for a new gateway: spillway init\n"
    )


def test_a_plugin_of_another_abi_is_refused() -> None:
    table = bridge.TableStruct()
    with pytest.raises(RuntimeError, match="rebuild the plugin"):
        bridge.check_sizes(table)
