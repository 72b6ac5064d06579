"""The states of blocks, without files."""

from __future__ import annotations

import pytest

from gateway.cache.hydration import BlockMap, BlockState


@pytest.mark.parametrize("count", [1, 7, 8, 9, 2561])
def test_the_durable_map_survives_its_row(count: int) -> None:
    wanted = {0, count // 2, count - 1}
    before = BlockMap(count)
    for block in range(count):
        before[block] = BlockState.DURABLE if block in wanted else BlockState.PRESENT
    bits = before.durable()
    assert len(bits) == -(-count // 8)
    assert bits[0] & 1
    after = BlockMap(count)
    after.believe(bits)
    assert set(after.all(BlockState.DURABLE)) == wanted


def test_runs_of_missing_blocks_are_taken_once() -> None:
    blocks = BlockMap(10)
    blocks[6] = BlockState.PRESENT
    assert blocks.take(2, 8) == range(2, 6)
    assert blocks.first(BlockState.MISSING) == 0
    assert blocks.take(0, 8) == range(2)
    assert blocks.first(BlockState.MISSING) == 7
    blocks[3] = BlockState.PRESENT
    blocks.release(range(2, 6))
    assert list(blocks.all(BlockState.MISSING)) == [2, 4, 5, 7, 8, 9]
    assert list(blocks.present()) == [range(3, 4), range(6, 7)]
    assert not blocks.is_whole
