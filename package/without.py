"""Finds what of some modules Python can make without a library that they import.

A statement of a module is left out if Python could not run it when the module is imported: it
imports the library, or uses a name that such a statement would have made, or calls a function that
uses one. What stands in the body of a function counts only if the function is called at the import.
Annotations count never: no module evaluates them (``from __future__ import annotations``).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Imported = ast.Import | ast.ImportFrom


class Module:
    """A module, and what of it is left out."""

    def __init__(self, path: Path) -> None:
        self._text = path.read_text(encoding="utf-8")
        self.statements = ast.parse(self._text).body
        self.kept: list[ast.stmt | None] = [*self.statements]
        """The statements as they are then; None: left out."""
        self.gone: set[str] = set()
        """Names that have no value then."""
        self.broken: set[str] = set()
        """Functions and classes that cannot be called then."""

    def bindings(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield each name that is imported, from which module, and as which of its names (None: the
        name is the module)."""
        for statement in self.statements:
            if isinstance(statement, ast.ImportFrom) and statement.module:
                yield from ((a.asname or a.name, statement.module, a.name) for a in statement.names)
            elif isinstance(statement, ast.Import):
                yield from ((a.asname or a.name, a.name, None) for a in statement.names)

    def source(self) -> str:
        """Return the text of the module. Each line has its number of before."""
        lines = self._text.splitlines()
        for statement, kept in zip(self.statements, self.kept, strict=True):
            if kept is statement:
                continue
            decorators = getattr(statement, "decorator_list", [])
            first = min(node.lineno for node in (statement, *decorators))
            assert statement.end_lineno is not None
            lines[first - 1 : statement.end_lineno] = [""] * (statement.end_lineno - first + 1)
            if kept is not None:
                lines[first - 1] = ast.unparse(kept)
        return "\n".join(lines) + "\n"


class Reduced:
    """Modules without what needs some libraries.

    Args:
        top: the directory of the packages.
        roots: modules, which come with all that they import.
        left_out: libraries, as they are imported.
    """

    def __init__(self, top: Path, roots: Collection[str], left_out: Collection[str]) -> None:
        self._top = top
        self._left_out = left_out
        self._roots = roots
        self._modules: dict[str, Module] = {}
        waiting = [*roots]
        while waiting:
            waiting += self._load(waiting.pop())
        while sum(map(self._reduce, self._modules.values())):
            pass

    def sources(self) -> dict[Path, str]:
        """Return the text of each module that is still imported, by its path below ``top``."""
        found: dict[Path, str] = {}
        waiting = [*self._roots]
        while waiting:
            name = waiting.pop()
            path = self._path(name)
            if path is None or (below := path.relative_to(self._top)) in found:
                continue
            module = self._modules[name]
            found[below] = module.source()
            waiting += [name.rpartition(".")[0]] if "." in name else []
            for statement in module.kept:
                waiting += [] if statement is None else _modules_of(statement)
        return found

    def _path(self, name: str) -> Path | None:
        path = self._top.joinpath(*name.split("."))
        candidates = (path / "__init__.py", path.with_suffix(".py"))
        return next((candidate for candidate in candidates if candidate.is_file()), None)

    def _load(self, name: str) -> list[str]:
        """Read a module, if it is one of ours and was not. Returns what it imports."""
        path = self._path(name)
        if path is None or name in self._modules:
            return []
        module = self._modules[name] = Module(path)
        found = [name.rpartition(".")[0]] if "." in name else []
        for statement in module.statements:
            found += _modules_of(statement)
        return found

    def _reduce(self, module: Module) -> bool:
        """Leave out what has to be. Returns whether anything was."""
        names = {name: (other, own) for name, other, own in module.bindings()}
        before = len(module.gone) + len(module.broken)
        for index, statement in enumerate(module.kept):
            if statement is None:
                continue
            if isinstance(statement, Imported):
                module.kept[index] = self._imported(module, statement)
            elif any(self._is_lacking(module, names, node) for node in _at_import(statement)):
                module.gone |= _bound(statement)
                module.kept[index] = None
            elif isinstance(statement, Defined) and any(
                self._is_lacking(module, names, node) for node in ast.walk(statement)
            ):
                module.broken.add(statement.name)
        return len(module.gone) + len(module.broken) > before

    def _imported(self, module: Module, statement: Imported) -> ast.stmt | None:
        """Return an import with what there is, or None."""
        there = []
        for alias in statement.names:
            source = statement.module or "" if isinstance(statement, ast.ImportFrom) else alias.name
            own = alias.name if isinstance(statement, ast.ImportFrom) else None
            if self._is_gone(source, own):
                module.gone.add(alias.asname or alias.name)
            else:
                there.append(alias)
        if len(there) == len(statement.names):
            return statement
        if not there:
            return None
        if isinstance(statement, ast.Import):
            return ast.Import(there)
        return ast.ImportFrom(statement.module, there, statement.level)

    def _is_gone(self, source: str, name: str | None) -> bool:
        other = self._modules.get(source)
        return source.partition(".")[0] in self._left_out or (
            other is not None and name in other.gone
        )

    def _is_broken(self, source: str, name: str | None) -> bool:
        other = self._modules.get(source)
        return other is not None and name in other.broken

    def _is_lacking(
        self, module: Module, names: dict[str, tuple[str, str | None]], node: ast.AST
    ) -> bool:
        """Return whether an expression is a name without a value, or calls a broken function."""
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return name in module.gone
            case ast.Attribute(value=ast.Name(id=alias), attr=name) if alias in names:
                return self._is_gone(_module_named(names[alias]), name)
            case ast.Call(func=ast.Name(id=name)):
                at = names.get(name)
                return name in module.broken or (at is not None and self._is_broken(*at))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=alias), attr=name)) if (
                alias in names
            ):
                return self._is_broken(_module_named(names[alias]), name)
        return False


def _module_named(binding: tuple[str, str | None]) -> str:
    """Return the module that an imported name is, if it is one."""
    source, own = binding
    return source if own is None else f"{source}.{own}"


def _modules_of(statement: ast.stmt) -> list[str]:
    """Return what an import names that may be a module."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.module:
        source = statement.module
        return [source, *(f"{source}.{alias.name}" for alias in statement.names)]
    return []


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is evaluated when a statement of a module or a class is run."""
    parts: list[ast.AST | None]
    match node:
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
            parts = [*node.decorator_list, *args.defaults, *args.kw_defaults]
        case ast.Lambda(args=args):
            parts = [*args.defaults, *args.kw_defaults]
        case ast.AnnAssign():
            parts = [node.target, node.value]
        case _:
            yield node
            parts = [*ast.iter_child_nodes(node)]
    for part in parts:
        if part is not None:
            yield from _at_import(part)


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement gives a value."""
    if isinstance(statement, Defined):
        return {statement.name}
    stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {node.id for node in stored if isinstance(node.ctx, ast.Store)}
