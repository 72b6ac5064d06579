"""Saves that have receipts, and the receipts that are there."""

from __future__ import annotations

from typing import Any

from gateway.catalogue.receipt_reconciler import ReceiptReconciler
from tests.support.checkpoints.world import World
from tests.support.direct import Direct


def save(world: World, path: str) -> None:
    """Save a checkpoint of torch."""
    world.write(f"{path}/0_0.distcp", b"shard")
    world.write(f"{path}/.metadata", b"1")


def control_of(world: World) -> Direct:
    """Return a control socket that changes the namespace which is open already."""
    control = Direct.__new__(Direct)
    control._namespace = world.namespace
    return control


def tree(reconciler: ReceiptReconciler) -> dict[str, Any]:
    """Return the receipts that are there, by path."""
    return {b"/".join(path).decode(): receipt for path, receipt in reconciler._tree.read().items()}
