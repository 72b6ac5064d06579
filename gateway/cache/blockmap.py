"""Keeps what is known of each block of an absent file. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum


class State(IntEnum):
    """The state of a block."""

    MISSING = 0
    TAKEN = 1
    """It is being fetched."""
    BAD = 2
    """The bucket does not have its bytes. It is asked again only when a client or the time says."""
    PRESENT = 3
    """Its bytes are verified and written."""
    DURABLE = 4
    """They are on stable storage too."""


_TO_BITS = bytes(ord("1") if state >= State.DURABLE else ord("0") for state in range(256))


class BlockMap:
    """The states of the blocks of one file.

    Parameters: count, of the blocks.
    """

    def __init__(self, count: int) -> None:
        self._states = bytearray(count)

    def __getitem__(self, block: int) -> State:
        return State(self._states[block])

    def __setitem__(self, block: int, state: State) -> None:
        self._states[block] = state

    def count(self, *states: State) -> int:
        """Return how many blocks are in one of these states."""
        return sum(self._states.count(state) for state in states)

    @property
    def is_whole(self) -> bool:
        """Whether all blocks are present."""
        return self.count(State.PRESENT, State.DURABLE) == len(self._states)

    @property
    def is_durable(self) -> bool:
        """Whether all blocks are on stable storage."""
        return self.count(State.DURABLE) == len(self._states)

    def first(self, state: State, start: int = 0) -> int:
        """Return the first block from a start on that is in a state, or -1."""
        return self._states.find(state, start)

    def all(self, state: State) -> Iterator[int]:
        """Yield the blocks that are in a state."""
        block = self.first(state)
        while block >= 0:
            yield block
            block = self.first(state, block + 1)

    def take(self, start: int, most: int) -> range:
        """Take the missing blocks from a missing one on, up to so many. Returns them."""
        end = start
        while end < min(start + most, len(self._states)) and self[end] is State.MISSING:
            self[end] = State.TAKEN
            end += 1
        return range(start, end)

    def release(self, blocks: range) -> None:
        """Make those of some blocks missing again that are taken."""
        for block in blocks:
            if self[block] is State.TAKEN:
                self[block] = State.MISSING

    def change(self, old: State, new: State) -> None:
        """Give all blocks of one state another one."""
        self._states = self._states.replace(bytes((old,)), bytes((new,)))

    def present(self) -> Iterator[range]:
        """Yield the runs of blocks that are present."""
        start = None
        for block, state in enumerate(self._states):
            if state >= State.PRESENT and start is None:
                start = block
            elif state < State.PRESENT and start is not None:
                yield range(start, block)
                start = None
        if start is not None:
            yield range(start, len(self._states))

    def durable(self) -> bytes:
        """Return a bit for each block that is on stable storage, as ``presence.blocks`` has them:
        the first in the lowest bit of the first byte."""
        digits = self._states.translate(_TO_BITS)[::-1].decode()
        return int(digits, 2).to_bytes(-(-len(self._states) // 8), "little")

    def believe(self, blocks: bytes) -> None:
        """Make the blocks durable that ``presence.blocks`` names."""
        digits = f"{int.from_bytes(blocks, 'little'):0{len(self._states)}b}"[::-1]
        for block in range(len(self._states)):
            if digits[block] == "1":
                self[block] = State.DURABLE
