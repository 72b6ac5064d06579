"""Tests how the image of the virtual client is built."""

import lzma

import pytest

from tests.support.vm.build import (
    BuildError,
    KernelPackage,
    load_order,
    parse_metapackage,
    unpack_kernel,
)

MODULES_DEP = """\
kernel/net/sunrpc.ko:
kernel/fs/lockd.ko: kernel/net/sunrpc.ko
kernel/fs/nfs.ko: kernel/fs/lockd.ko kernel/net/sunrpc.ko
kernel/fs/9p.ko:
"""


def test_metapackage_names_one_version_of_one_kernel() -> None:
    package = parse_metapackage(
        "Package: linux-image-amd64\nVersion: 6.1.9-2\n"
        "Depends: linux-base, linux-image-6.1.0-5-amd64 (= 6.1.9-2)\nSection: kernel\n"
    )
    assert package == KernelPackage("linux-image-6.1.0-5-amd64", "6.1.9-2")
    assert package.release == "6.1.0-5-amd64"


def test_no_kernel_without_package_lists() -> None:
    assert parse_metapackage("") is None


def test_modules_load_after_what_they_need_and_once() -> None:
    built_in = "kernel/drivers/virtio/virtio_pci.ko\n"
    assert load_order(MODULES_DEP, built_in, ["virtio_pci", "9p", "nfs", "lockd"]) == [
        "kernel/fs/9p.ko",
        "kernel/net/sunrpc.ko",
        "kernel/fs/lockd.ko",
        "kernel/fs/nfs.ko",
    ]


def test_unknown_module_is_named() -> None:
    with pytest.raises(BuildError, match=r"no module nfsv5\.ko"):
        load_order(MODULES_DEP, "", ["nfsv5"])


def test_packed_modules_are_found() -> None:
    assert load_order("kernel/fs/9p.ko.xz:\n", "", ["9p"]) == ["kernel/fs/9p.ko.xz"]


def test_kernel_is_unpacked_whatever_surrounds_it() -> None:
    assert (
        unpack_kernel(b"loader" + lzma.compress(b"\x7fELF kernel") + b"rest") == b"\x7fELF kernel"
    )
    assert unpack_kernel(b"not xz") == b"not xz"
