"""Import graph of the product: ``make graph`` draws it.

Packages stand in layers (``LAYERS``). One may import packages of lower layers, and its own modules.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.checkout import ROOT

LAYERS: tuple[tuple[str, ...], ...] = (
    ("gateway.common",),
    ("gateway.config",),
    ("gateway.db",),
    ("gateway.namespace",),
    ("gateway.rpc",),
    ("gateway.objectstore",),
    ("gateway.cache",),
    ("gateway.catalogue",),
    ("gateway.drain",),
    ("gateway.lifecycle",),
    ("gateway.recovery",),
    ("gateway.nfs",),
    ("gateway.processes",),
    ("gateway.service", "fsal"),
    ("gateway.appliance",),
    ("admin_api",),
    ("gateway.cli",),
)
"""The packages, from the lowest layer up."""
SECTIONS = (
    ("gateway.drain.admission", "gateway.drain.send", "gateway.drain.tidy", "gateway.drain.plan"),
    (
        "gateway.lifecycle.promotion",
        "gateway.lifecycle.retention",
        "gateway.lifecycle.trash",
    ),
    ("admin_api.access", "admin_api.jobs", "admin_api.routes", "admin_api.pages"),
)
"""Packages within a package. Each may import those before it."""
PRODUCT = ("gateway", "admin_api", "fsal")


def modules() -> dict[str, Path]:
    """Return the files of the product's modules by their names."""
    paths = (path for top in PRODUCT for path in sorted((ROOT / top).rglob("*.py")))
    return {name_of(path): path for path in paths}


def name_of(path: Path) -> str:
    """Return the name of the module in a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports: each name that is imported from a module also by itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_in(module: str, package: str) -> bool:
    """Return whether a module is a package, or below it."""
    return f"{module}.".startswith(f"{package}.")


def package_of(module: str) -> str | None:
    """Return the package of ``LAYERS`` that a module is in, or None."""
    return next((package for layer in LAYERS for package in layer if is_in(module, package)), None)


def layer_of(package: str) -> int:
    """Return the number of a package's layer, from 0."""
    return next(number for number, layer in enumerate(LAYERS) if package in layer)


def arrows() -> Counter[tuple[str, str]]:
    """Return how many imports lead from each module to each other one of the product."""
    known = modules()
    return Counter(
        (name, other)
        for name, path in known.items()
        for other in {import_ for import_ in imports(path) if import_ in known}
        # "from gateway.drain import paths" names the package beside the module.
        if not is_in(name, other)
    )


def between_packages(found: Mapping[tuple[str, str], int]) -> Counter[tuple[str, str]]:
    """Return how many imports lead from each package to each other one."""
    made = Counter[tuple[str, str]]()
    for (name, other), count in found.items():
        here, there = package_of(name), package_of(other)
        if here is not None and there is not None and here != there:
            made[here, there] += count
    return made


def leads_up(name: str, other: str) -> bool:
    """Return whether an import of a module leads to its own layer or a higher one, or to a later
    section of its package."""
    for sections in SECTIONS:
        at = [index for index, section in enumerate(sections) if is_in(name, section)]
        to = [index for index, section in enumerate(sections) if is_in(other, section)]
        if at and to:
            return to > at
    package, there = package_of(name), package_of(other)
    return (
        package is not None
        and there is not None
        and package != there
        and layer_of(there) >= layer_of(package)
    )


def packages() -> set[str]:
    """Return the packages of the product, and its modules beside them."""
    return {name for name, path in modules().items() if path.name == "__init__.py"} | {
        name for name in modules() if name.count(".") == 1 and name.startswith("gateway.")
    }


def draw() -> Iterator[str]:
    """Yield a drawing: the layers from the top, each package with those that it imports."""
    every, found = arrows(), between_packages(arrows())
    names = [package_of(module) for module in modules()]
    for number, layer in reversed(list(enumerate(LAYERS))):
        for package in layer:
            below = [there.rpartition(".")[2] for here, there in sorted(found) if here == package]
            yield (
                f"{number:>2}  {package:<20} {names.count(package):>3} modules  "
                f"imports {', '.join(below) or 'none'}"
            )
    up = sum(leads_up(*arrow) for arrow in every)
    yield (
        f"{len(modules())} modules in {len(packages())} packages, "
        f"{len(found)} arrows between packages, {up} imports lead up"
    )


def main() -> None:
    sys.stdout.writelines(f"{line}\n" for line in draw())
    sys.exit(any(leads_up(*arrow) for arrow in arrows()))


if __name__ == "__main__":
    main()
