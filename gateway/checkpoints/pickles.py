"""Reads pickles without unpickling: nothing that a pickle names is imported or called. Pure.

The operations of a pickle are followed on a stack of plain values (``pickletools.genops``). What
unpickling would build by a call is a ``Made`` here, which only says what was to be called.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from typing import Any

from gateway.errors import SpillwayError

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
        is_end = any(one in str(exc) for one in _ENDS)
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
        found = self._stack[at + 1 :]
        del self._stack[at:]
        return found

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _call(self, name: str, args: Any) -> None:
        one = Made(name, args)
        self.made.append(one)
        self._stack.append(one)

    def _tuple(self, count: int) -> None:
        found = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._push(found)

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
