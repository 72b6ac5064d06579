"""Tests the rules of the plugin's C: each file has its area, includes are exact, no circle."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.t0.tidy import require_no_circle

NATIVE = Path(__file__).parents[2] / "fsal" / "native"
NOTHING_TO_DECLARE = {"main.c"}
"""Files without a section: only the loader calls their functions, the plugin's start and end."""
SOURCES = {path.name: path.read_text() for path in sorted(NATIVE.glob("*.c"))}
HEADERS = {path.name: path.read_text() for path in sorted(NATIVE.glob("*.h"))}
MAP = NATIVE / "README.md"
NAME = r"\b(?:struct |enum )?spw_\w+|\bSPW_\w+"
SECTION = re.compile(r"^/\* ---- (\w+\.c) ---- \*/$", re.MULTILINE)
"""The line in a header before what a C file declares."""
GANESHA = {"ganesha.h"}
"""A header that is included for names without spw_ too. Without it nothing of theirs compiles."""


def code(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def declared(header: str) -> set[str]:
    """Return the types, functions, variables, macros and enumerators that a header declares."""
    text = code(header)
    enumerators = re.findall(r"^enum (?:spw_\w+ )?\{(.*?)\}", text, re.MULTILINE | re.DOTALL)
    return {
        *re.findall(r"^((?:struct|enum) spw_\w+) \{", text, re.MULTILINE),
        *re.findall(r"^(?:\w+ )+\**(spw_\w+)[(;[]", text, re.MULTILINE),
        *re.findall(r"^typedef .*\(\*(spw_\w+)\)", text, re.MULTILINE),
        *re.findall(r"^#define (SPW_\w+)", text, re.MULTILINE),
        *re.findall(r"\bSPW_\w+", " ".join(enumerators)),
    }


def sections(header: str) -> dict[str, str]:
    """Return the sections of a header by the C file that they are of."""
    parts = SECTION.split(header)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


SECTIONS = [
    (source, header, text)
    for header, whole in HEADERS.items()
    for source, text in sections(whole).items()
]
HEADER_OF = {source: header for source, header, _ in SECTIONS}
DECLARED_BY = {name: header for header, text in HEADERS.items() for name in declared(text)}


def defined(source: str) -> set[str]:
    """Return the functions with the prefix spw_ that a C file defines."""
    return set(re.findall(r"^\w[^;\n={]*?\b(spw_\w+)\([^;]*?\)\n\{", source, re.MULTILINE))


def included(text: str) -> set[str]:
    """Return the headers of this folder that a file includes."""
    return {name for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE) if name in HEADERS}


def used(text: str) -> set[str]:
    """Return the headers that declare the names that a file uses."""
    return {DECLARED_BY[name] for name in re.findall(NAME, code(text)) if name in DECLARED_BY}


def test_each_file_has_one_section_that_declares_its_functions() -> None:
    placed = sorted(source for source, _, _ in SECTIONS)
    assert placed == sorted(SOURCES.keys() - NOTHING_TO_DECLARE)
    wrong = []
    for source, header, text in SECTIONS:
        assert header in included(SOURCES[source]), f"{source} does not include {header}"
        wrong += [
            f"{function} of {source} is not in its section of {header}"
            for function in defined(SOURCES[source]) - declared(text)
        ]
    assert not wrong


def test_the_map_names_each_header_with_its_files() -> None:
    rows = re.findall(r"^\| `(\w+\.h)` \|.*\|(.*)\|$", MAP.read_text(), re.MULTILINE)
    assert {header: re.findall(r"`(\w+\.c)`", files) for header, files in rows} == {
        header: list(sections(text)) for header, text in HEADERS.items()
    }


def test_each_name_is_declared_once() -> None:
    assert len(DECLARED_BY) > 150
    assert len(DECLARED_BY) == sum(len(declared(text)) for text in HEADERS.values())


def test_each_file_includes_what_it_uses_and_no_more() -> None:
    """A C file may use what the header of its area includes."""
    wrong = []
    for name, text in (SOURCES | HEADERS).items():
        own = HEADER_OF.get(name, name)
        theirs = included(HEADERS.get(own, "")) if name in SOURCES else set()
        needed = used(text) - theirs - {own} - GANESHA
        has = included(text) - {own} - GANESHA
        wrong += [f"{name} uses {header} and does not include it" for header in needed - has]
        wrong += [f"{name} includes {header} for nothing" for header in has - needed]
    assert not wrong


def test_no_include_leads_back() -> None:
    require_no_circle({name: included(text) for name, text in HEADERS.items()})


def test_no_call_leads_back() -> None:
    """Calls between C files make no circle. A function belongs to the file that defines it."""
    owner = {function: name for name, text in SOURCES.items() for function in defined(text)}
    assert len(owner) > 80
    require_no_circle(
        {
            name: {owner[call] for call in re.findall(r"\b(spw_\w+)\(", text) if call in owner}
            for name, text in SOURCES.items()
        }
    )
