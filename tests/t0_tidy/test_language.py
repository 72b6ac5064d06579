"""Comments, docstrings and documents are plain: they have subjects, and name what they speak of."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.support.checkout import ROOT
from tests.support.t0.docs import DOCUMENTS
from tests.support.t0.tidy import sources

VAGUE = re.compile(r"\b(?:somebody|nobody|whoever|anew|goe?s? on|went on|gone on)\b", re.IGNORECASE)
USER_NOBODY = re.compile(r"\b(?:users?|becomes?|be) `?nobody\b")
"""The user of that name, to which clients' users are squashed."""
FRAGMENT = re.compile(r"(?:Of|Until|So many|As) ")
"""How a docstring begins that has no subject: it can be read only with the name above it."""


def docstrings(text: str) -> Iterator[str]:
    """Yield the docstrings of a module, also those of constants and fields."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr):
            match node.value:
                case ast.Constant(value=str(said)):
                    yield said


def comments(path: Path) -> Iterator[str]:
    """Yield the comments of a file, and of a Python module the docstrings."""
    text = path.read_text()
    if path.suffix != ".py":
        yield from re.findall(r"/\*.*?\*/", text, re.DOTALL)
        return
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from (token.string for token in tokens if token.type == tokenize.COMMENT)
    yield from docstrings(text)


def vague(text: str) -> list[str]:
    return VAGUE.findall(USER_NOBODY.sub("", " ".join(text.split())))


def in_sources() -> Iterator[tuple[str, str]]:
    return ((str(path.relative_to(ROOT)), text) for path in sources() for text in comments(path))


def test_comments_and_documents_name_what_they_speak_of() -> None:
    documents = ((str(path.relative_to(ROOT)), path.read_text()) for path in DOCUMENTS)
    found = [(path, word) for path, text in (*in_sources(), *documents) for word in vague(text)]
    assert found == []


def test_docstrings_have_a_subject() -> None:
    assert [(path, text) for path, text in in_sources() if FRAGMENT.match(text)] == []


def test_what_is_vague_would_be_seen() -> None:
    said = """# Nobody waits. It goes on, and the user `nobody`\nwaits anew."""
    assert vague(said) == ["Nobody", "goes on", "anew"]
    assert list(docstrings('A = 1\n"""Of a file."""')) == ["Of a file."]
