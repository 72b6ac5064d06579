"""Comparison of files with the steps that ``guest/confirm.py`` has confirmed."""

from __future__ import annotations

import hashlib

from tests.support.client import MOUNT
from tests.support.guest.confirm import KEPT, content
from tests.support.vm.client import ClientVm


def files_in(vm: ClientVm, directory: str) -> dict[str, str]:
    """Return the sha256 of every file by name, and the target of the link "latest"."""
    look = f"cd {MOUNT / directory} && sha256sum *.pt && readlink latest"
    *sums, latest = vm.run(look).stdout.splitlines()
    return {"latest": latest, **{name: found for found, name in map(str.split, sums)}}


def check(found: dict[str, str], steps: int) -> None:
    """Require the files of every confirmed step, and none of those that it removed.

    One further step may be complete although its line did not reach us, and the next may be half
    done.
    """
    digests = {step_of(name): digest for name, digest in found.items() if name != "latest"}
    told = f"{steps} steps were confirmed, found: {found}"
    assert step_of(found["latest"]) in range(steps - 1, steps + 2), told
    assert set(sure(steps)) <= set(digests) <= set(range(steps - KEPT, steps + 2)), told
    for step, digest in digests.items():
        assert digest == hashlib.sha256(content(step)).hexdigest(), f"the bytes of step {step}"


def step_of(name: str) -> int:
    return int(name.removesuffix(".pt"))


def sure(steps: int) -> range:
    """Return the steps whose files must be there after ``steps`` confirmed steps."""
    return range(steps - KEPT + 2, steps)
