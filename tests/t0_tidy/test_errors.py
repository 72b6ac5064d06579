"""Every exception class of the product derives from one root, as the drawing in errors.py says."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping

from gateway.common import errors
from tests.support.t0.importgraph import name_of
from tests.support.t0.tidy import sources

ROOT_CLASS = "gateway.common.errors.SpillwayError"
PRODUCT = ("gateway", "admin_api", "fsal")

Bases = Mapping[str, list[str]]
"""The bases of each class, all with the names of their modules. A builtin has none."""


def classes(module: str, tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    nodes = list(ast.walk(tree))
    defined = [node for node in nodes if isinstance(node, ast.ClassDef)]
    known = {node.name: f"{module}.{node.name}" for node in defined}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            known |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    for node in defined:
        dotted = [ast.unparse(base).split("[")[0].partition(".") for base in node.bases]
        yield (
            known[node.name],
            [known.get(first, first) + dot + rest for first, dot, rest in dotted],
        )


def above(name: str, bases: Bases) -> set[str]:
    """Return all classes above one, and itself."""
    return {name}.union(*(above(base, bases) for base in bases.get(name, ())))


def is_exception(name: str) -> bool:
    kind = getattr(builtins, name, None)
    is_ours = isinstance(kind, type) and issubclass(kind, BaseException)
    return is_ours or name.endswith(("Error", "Exception"))


def strays(bases: Bases) -> set[str]:
    """Return the exception classes that do not derive from the root."""
    return {
        name
        for name in bases
        if any(map(is_exception, found := above(name, bases))) and ROOT_CLASS not in found
    }


def product() -> Bases:
    paths = [path for path in sources() if path.suffix == ".py"]
    modules = {name_of(path): path for path in paths}
    return {
        name: found
        for module, path in modules.items()
        if module.split(".")[0] in PRODUCT
        for name, found in classes(module, ast.parse(path.read_text()))
    }


def test_each_exception_class_is_in_the_tree() -> None:
    bases = product()
    assert len([base for base in bases if ROOT_CLASS in above(base, bases)]) > 60
    assert strays(bases) == set()


def test_a_class_outside_the_tree_would_be_seen() -> None:
    text = """
from gateway.common import errors
from gateway.common.errors import UserError
import ssl
class Root(errors.SpillwayError): pass
class Fine(UserError): pass
class Both(Root, OSError): pass
class Plain(dict[str, int]): pass
def f():
    class Hidden(KeyError): pass
class Below(Hidden): pass
class Odd(ssl.SSLError): pass
"""
    bases = {**product(), **dict(classes("m", ast.parse(text)))}
    assert strays(bases) == {"m.Hidden", "m.Below", "m.Odd"}


def test_the_drawing_of_the_tree_is_right() -> None:
    drawing = str(errors.__doc__)
    at: list[str] = ["SpillwayError"]
    for line in drawing.splitlines():
        if (drawn := re.match(r"    ([│ ]*)[├└]── (.+?)(?:  |$)", line)) is None:
            continue
        del at[len(drawn[1]) // 4 + 1 :]
        at.append(drawn[2].split(",")[0])
        kind = getattr(errors, at[-1], None)
        assert kind is None or kind.__base__.__name__ == at[-2], line
    ours = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert {name for name in ours if not re.search(rf"\b{name}\b", drawing)} == set()
