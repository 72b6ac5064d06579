"""The hand-made ``.metadata`` of the unit tests is read like one by torch."""

from __future__ import annotations

import pytest

from gateway.catalogue import content, indexes
from gateway.catalogue.content import Made, Pairs
from tests.frameworks.savings import SAVINGS, Record, Saving
from tests.support.checkpoints.layouts import metadata
from tests.support.checkpoints.memory import Memory, MemoryPlace, parts

STATE = ("relative_path", "offset", "length")
DCP = [saving for saving in SAVINGS if saving.rule == "dcp"]


def listing(data: bytes) -> indexes.Listing | None:
    memory = Memory()
    memory.add(parts("run"), None)
    memory.add(parts("run/.metadata"), data)
    return indexes.distributed(MemoryPlace(memory, parts("run")))


def pieces(data: bytes) -> list[Made]:
    _value, made = content.read(data)
    return [instance for instance in made if instance.name.endswith("._StorageInfo")]


@pytest.mark.parametrize("saving", DCP, ids=lambda saving: saving.call)
def test_metadata_by_torch_and_by_hand_are_read_alike(saving: Saving, record: Record) -> None:
    tree = record(saving).trees[0]
    above = saving.at(0) + "/"
    files = {path.removeprefix(above): data for path, data in tree.items()}
    real = files.pop(".metadata")
    (size,) = {len(data) for data in files.values()}
    made = metadata(*files, size=size)
    # Torch lists each shard to its last byte.
    assert listing(real) == listing(made) == {(name.encode(),): size for name in files}
    kinds = [
        {(type(instance.args), instance.name, type(instance.state)) for instance in pieces(d)}
        for d in (real, made)
    ]
    assert kinds[0] == kinds[1]
    for data in (real, made):
        for instance in pieces(data):
            assert isinstance(instance.state, Pairs)
            assert [type(instance.state.get(key)) for key in STATE] == [str, int, int]
