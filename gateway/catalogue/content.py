"""Readers of untrusted files in checkpoints: JSON, safetensors, zip archives, pickles. Pure.

Bytes come from jobs that may have been killed in the middle, so whatever cannot be understood is a
reason why a checkpoint is not complete, and never an error.

No pickle is unpickled: nothing that it names is imported or called. Its operations are followed on
a stack of plain values (``pickletools.genops``). What unpickling would build by a call is a
``Made`` here, which only says what was to be called.

Zip archives, which ``torch.save`` writes, are judged by the directory at their end, without reading
what is in them.
"""

from __future__ import annotations

import io
import json
import pickletools
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from gateway.catalogue.facts import READ_MAX_BYTES, Place, PlaceEntry
from gateway.common.errors import SpillwayError
from gateway.common.text import printable
from gateway.common.units import size

UNREADABLE = (zipfile.BadZipFile, OSError, ValueError, NotImplementedError)
"""What ``zipfile`` raises for a file that is not an archive, or is a damaged one."""


def archive_is_whole(place: Place, name: bytes, entry: PlaceEntry) -> bool:
    """Return whether a zip archive has its directory at its end. Raises Unread."""
    try:
        with zipfile.ZipFile(ArchiveReader(place, name, entry)) as archive:
            infos = archive.infolist()
    except UNREADABLE:
        return False
    return all(info.header_offset + info.compress_size <= entry.size for info in infos)


class ArchiveReader(io.RawIOBase):
    """A file in a place, for ``zipfile``."""

    def __init__(self, place: Place, name: bytes, entry: PlaceEntry) -> None:
        self._place, self._name, self._entry = place, name, entry
        self._at = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = (0, self._at, self._entry.size)[whence]
        if start + offset < 0:
            raise OSError("a position before the file")
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._entry.size - self._at)
        length = rest if size is None or size < 0 else min(size, rest)
        if length > READ_MAX_BYTES:
            raise OSError("more than is read of a file at once")
        data = self._place.read(self._name, self._entry, self._at, length) if length else b""
        self._at += len(data)
        return data


OPERATIONS_MAX = 8_000_000
"""Longer pickles are not read to their end: it would take a minute."""
_MARK = object()
_ENDS = ("exhausted", "not enough data", "expected", "no newline found")
"""What pickletools says of bytes that end in the middle of an operation."""


class CutOff(SpillwayError):
    """The bytes end before the pickle does."""


class NotUnderstood(SpillwayError):
    """The bytes are no pickle, or one with an operation that is not known here."""


class Made:
    """What a call or a class instance would be.

    Attributes: name, ``module.name`` of what is called; args; state, what ``__setstate__`` would
    get; items, which would be added to it.
    """

    __slots__ = ("args", "items", "name", "state")

    def __init__(self, name: str, args: Any) -> None:
        self.name = name
        self.args = args
        self.state: Any = None
        self.items: list[Any] = []


class Pairs(list[tuple[Any, Any]]):
    """A dictionary. Its keys may be what cannot be hashed here."""

    def get(self, key: str) -> Any:
        """Return the last value of a key that is text, or None."""
        return next((value for name, value in reversed(self) if name == key), None)


def read(data: bytes) -> tuple[Any, list[Made]]:
    """Read a pickle.

    Returns: the value that it ends with, and everything that it would have made. Raises CutOff,
    NotUnderstood.
    """
    machine = _Machine()
    try:
        for count, (operation, argument, _position) in enumerate(pickletools.genops(data)):
            if count > OPERATIONS_MAX:
                raise NotUnderstood(f"it has more than {OPERATIONS_MAX} operations")
            if operation.name == "STOP":
                return machine.pop(), machine.made
            machine.do(operation.name, argument)
    except (ValueError, UnicodeError) as exc:
        is_end = any(ending in str(exc) for ending in _ENDS)
        raise (CutOff if is_end else NotUnderstood)(str(exc)) from None
    except (IndexError, KeyError, TypeError, AttributeError) as exc:
        raise NotUnderstood(f"{type(exc).__name__}: {exc}") from None
    raise CutOff("it has no end")


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self.made: list[Made] = []

    def pop(self) -> Any:
        return self._stack.pop()

    def do(self, name: str, argument: Any) -> None:
        if name in _IGNORED:
            return
        if name in _VALUES:
            self._stack.append(_VALUES[name](argument))
        else:
            _DOES[name](self, argument)

    def _above_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
        stack = self._stack[at + 1 :]
        del self._stack[at:]
        return stack

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _call(self, name: str, args: Any) -> None:
        instance = Made(name, args)
        self.made.append(instance)
        self._stack.append(instance)

    def _tuple(self, count: int) -> None:
        stack = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._push(stack)

    def _global(self, argument: str) -> None:
        self._push(argument.replace(" ", ".", 1))

    def _stack_global(self, _argument: Any) -> None:
        name, module = self.pop(), self.pop()
        self._push(f"{module}.{name}")

    def _reduce(self, _argument: Any) -> None:
        args, called = self.pop(), self.pop()
        # ``copyreg._reconstructor`` and ``__newobj__`` make an instance of their first argument.
        is_class = isinstance(called, str) and called.startswith(("copyreg.", "copy_reg."))
        self._call(str(args[0] if is_class and args else called), args)

    def _newobj(self, _argument: Any) -> None:
        args, cls = self.pop(), self.pop()
        self._call(str(cls), args)

    def _newobj_ex(self, _argument: Any) -> None:
        _keywords, args, cls = self.pop(), self.pop(), self.pop()
        self._call(str(cls), args)

    def _build(self, _argument: Any) -> None:
        state = self.pop()
        target = self._stack[-1]
        if isinstance(target, Made):
            target.state = state

    def _append(self, _argument: Any) -> None:
        value = self.pop()
        self._extend([value])

    def _appends(self, _argument: Any) -> None:
        self._extend(self._above_mark())

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        (target.items if isinstance(target, Made) else target).extend(values)

    def _setitem(self, _argument: Any) -> None:
        value, key = self.pop(), self.pop()
        self._extend([(key, value)])

    def _setitems(self, _argument: Any) -> None:
        self._extend(list(_pairs(self._above_mark())))

    def _persistent(self, _argument: Any) -> None:
        self._call("persistent", self.pop())

    def _put(self, at: int) -> None:
        self._memo[at] = self._stack[-1]

    def _memoize(self, _argument: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, at: int) -> None:
        self._push(self._memo[at])

    def _pop_one(self, _argument: Any) -> None:
        self.pop()

    def _duplicate(self, _argument: Any) -> None:
        self._push(self._stack[-1])

    def _mark(self, _argument: Any) -> None:
        self._push(_MARK)

    def _pop_mark(self, _argument: Any) -> None:
        self._above_mark()

    def _make_tuple(self, _argument: Any) -> None:
        self._push(tuple(self._above_mark()))

    def _make_list(self, _argument: Any) -> None:
        self._push(self._above_mark())

    def _make_dict(self, _argument: Any) -> None:
        self._push(Pairs(_pairs(self._above_mark())))


def _pairs(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(values[::2], values[1::2], strict=True)


_IGNORED = frozenset(("PROTO", "FRAME"))
_CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_LIST": lambda _: [],
    "EMPTY_SET": lambda _: [],
    "EMPTY_DICT": lambda _: Pairs(),
}
_WITH_VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE"),
    *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
_VALUES: dict[str, Callable[[Any], Any]] = {
    **_CONSTANTS,
    **dict.fromkeys(_WITH_VALUES, lambda argument: argument),
}
_DOES: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine._mark,
    "POP": _Machine._pop_one,
    "POP_MARK": _Machine._pop_mark,
    "DUP": _Machine._duplicate,
    "TUPLE": _Machine._make_tuple,
    "TUPLE1": lambda machine, _: machine._tuple(1),
    "TUPLE2": lambda machine, _: machine._tuple(2),
    "TUPLE3": lambda machine, _: machine._tuple(3),
    "LIST": _Machine._make_list,
    "FROZENSET": _Machine._make_list,
    "DICT": _Machine._make_dict,
    "APPEND": _Machine._append,
    "APPENDS": _Machine._appends,
    "ADDITEMS": _Machine._appends,
    "SETITEM": _Machine._setitem,
    "SETITEMS": _Machine._setitems,
    "GLOBAL": _Machine._global,
    "STACK_GLOBAL": _Machine._stack_global,
    "REDUCE": _Machine._reduce,
    "NEWOBJ": _Machine._newobj,
    "NEWOBJ_EX": _Machine._newobj_ex,
    "BUILD": _Machine._build,
    "BINPERSID": _Machine._persistent,
    "PUT": _Machine._put,
    "BINPUT": _Machine._put,
    "LONG_BINPUT": _Machine._put,
    "MEMOIZE": _Machine._memoize,
    "GET": _Machine._get,
    "BINGET": _Machine._get,
    "LONG_BINGET": _Machine._get,
}


TRACKER_MAX_BYTES = 4096
_ZIP = b"PK\x03\x04"
TENSORS = (b".pt", b".pth", b".bin", b".safetensors", b".ckpt")
"""The ends of the names of files of tensors."""
_JSON = (b".json", b"_METADATA", b"_sharding")
"""The same of JSON. Orbax's metadata have no other."""
_OCDBT = b".ocdbt"
"""A manifest of TensorStore's OCDBT, which Orbax saves with."""
_PICKLE = b".pkl"
"""Accelerate's random states. They are archives, since ``torch.save`` writes these."""


def text_in(place: Place, name: bytes) -> bytes | None:
    """Return what the tracker beside a place says, or None if there is none. Raises Unread."""
    entry = place.beside(name)
    if entry is None or not entry.is_file:
        return None
    return place.read(name, entry, 0, TRACKER_MAX_BYTES).strip()


def number_in(place: Place, name: bytes, prefix: str) -> int | None:
    """Return the step that the tracker beside a place names, or None if it names none. Raises
    Unread."""
    text = (text_in(place, name) or b"").decode("ascii", "replace")
    digits = text.removeprefix(prefix)
    is_number = text.startswith(prefix) and digits.isascii() and digits.isdigit()
    return int(digits) if is_number and len(digits) <= 18 else None


def not_json(place: Place, name: bytes, entry: PlaceEntry) -> tuple[str | None, Any]:
    """Return why a file in a place cannot be used as a JSON object, or None, and the object.
    Raises Unread."""
    if entry.size > READ_MAX_BYTES:
        return f"{printable(name)} is larger than {size(READ_MAX_BYTES)}", None
    try:
        document = json.loads(place.read(name, entry, 0, READ_MAX_BYTES))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return f"{printable(name)} is no whole JSON object", None
    return None, document


def cut_off(place: Place, name: bytes, entry: PlaceEntry) -> str | None:
    """Return why a file ends before its kind must, or None. Raises Unread.

    Args:
        name: name with the path below the place, or the name of the place itself.
    """
    if name.endswith(_JSON):
        # Larger ones are no metadata. They have no end that a part of them shows.
        return None if entry.size > READ_MAX_BYTES else _not_whole_json(place, name, entry)
    if name.endswith(_OCDBT):
        return _not_whole_ocdbt(place, name, entry)
    if not name.endswith((*TENSORS, _PICKLE)):
        return None
    if not entry.size:
        return f"{printable(name)} is empty"
    if name.endswith(b".safetensors"):
        is_whole = _safetensors_bytes(place, name, entry) == entry.size
        return None if is_whole else f"{printable(name)} ends before its last tensor"
    if is_archive(place, name, entry) and not archive_is_whole(place, name, entry):
        return f"{printable(name)} ends before the directory of its archive"
    if name.endswith(_PICKLE) and _pickle_is_cut_off(place, name, entry):
        return f"{printable(name)} ends too early"
    return None


def ends_by_kind(place: Place, name: bytes, entry: PlaceEntry) -> bool:
    """Return whether a file is of a kind whose end shows that it is whole, and is whole. Raises
    Unread."""
    if not name.endswith((b".json", *TENSORS)) or cut_off(place, name, entry) is not None:
        return False
    return name.endswith(b".json") or has_own_index(place, name, entry)


def is_archive(place: Place, name: bytes, entry: PlaceEntry) -> bool:
    """Return whether a file is what ``torch.save`` writes: a zip archive. Older versions wrote a
    pickle, whose end nothing shows. Raises Unread."""
    return place.read(name, entry, 0, len(_ZIP)) == _ZIP


def has_own_index(place: Place, name: bytes, entry: PlaceEntry) -> bool:
    """Return whether a file of tensors, which ends as it must, lists what is in it. Raises
    Unread."""
    return name.endswith(b".safetensors") or is_archive(place, name, entry)


def _not_whole_json(place: Place, name: bytes, entry: PlaceEntry) -> str | None:
    text = place.read(name, entry, 0, READ_MAX_BYTES).strip()
    try:
        json.loads(text)
    except (ValueError, RecursionError) as exc:
        # What else is wrong with it, or whether it is lines of JSON, shows nothing of its end.
        if _is_at_end(exc) or not text.endswith((b"}", b"]")):
            return f"{printable(name)} ends too early"
    return None


def _is_at_end(exc: Exception) -> bool:
    """Return whether more text could have followed where it is wrong."""
    if not isinstance(exc, json.JSONDecodeError):
        return False
    return exc.pos >= len(exc.doc) or exc.msg.startswith("Unterminated")


def _not_whole_ocdbt(place: Place, name: bytes, entry: PlaceEntry) -> str | None:
    """It begins with four bytes that tell its kind, and its length in the next eight."""
    length = int.from_bytes(place.read(name, entry, 4, 8), "little")
    return None if length == entry.size else f"{printable(name)} ends too early"


def _pickle_is_cut_off(place: Place, name: bytes, entry: PlaceEntry) -> bool:
    """Return whether a pickle has no end. Of an archive, or a large one, nothing is said."""
    if entry.size > READ_MAX_BYTES or is_archive(place, name, entry):
        return False
    try:
        read(place.read(name, entry, 0, entry.size))
    except CutOff:
        return True
    except NotUnderstood:
        pass
    return False


def _safetensors_bytes(place: Place, name: bytes, entry: PlaceEntry) -> int | None:
    """Return the length that the header of a file of safetensors tells, or None."""
    length = int.from_bytes(place.read(name, entry, 0, 8), "little")
    if length > min(READ_MAX_BYTES, entry.size - 8):
        return None
    try:
        header = json.loads(place.read(name, entry, 8, length))
        ends = [
            tensor["data_offsets"][1] for key, tensor in header.items() if key != "__metadata__"
        ]
        return 8 + length + int(max(ends, default=0))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
