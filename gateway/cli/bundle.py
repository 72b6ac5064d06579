"""Archive of `spillway support-bundle`: parts that are gathered in bounded time, without secrets.

A part that cannot be had is a line of ``MANIFEST``, the last member, and the others are there. Each
text passes ``SecretMask`` on its way into the archive, whatever its part left out before: nothing
else writes a member.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import quote, quote_plus

from gateway.common import clock
from gateway.service.configuration import MASK

Make = Callable[[], str]
"""Returns the text of a part. What it raises is told in MANIFEST."""

PART_SECONDS = 30.0
"""The longest time of one part: a database or a disk that does not answer must not keep a person
waiting."""
ALL_SECONDS = 240.0
"""The longest time of all parts together. Those that are left then are not tried."""
PART_BYTES_MAX = 64 << 20
SECRET_MIN = 4
"""Shorter values are no secrets, and would be found in any text."""

_PATTERNS = (
    # User and password of a URL (RFC 3986, 3.2.1).
    (re.compile(r"(\w://)[^\s/@\"']*:[^\s\"']*@"), rf"\1{MASK}@"),
    # Tokens of the admin API, their hashes, secrets of webhooks.
    (re.compile(r"spw_[0-9a-f]{12}_[\w-]+"), MASK),
    (re.compile(r"\$argon2\w*\$[^\s\"']+"), MASK),
    (re.compile(r"whsec_[\w+/=-]+"), MASK),
    (re.compile(r"(?i)(\bauthorization\b[\"']?\s*[:=]).*"), rf"\1 {MASK}"),
    (
        re.compile(
            r"(?i)(\b(?:x-amz-security-token|x-amz-signature|aws_secret_access_key|"
            r"aws_session_token|password|passwd)\b[\"']?\s*[:=]\s*)[^\s,;&\"']+"
        ),
        rf"\1{MASK}",
    ),
)
"""What looks like a secret, also one that this gateway had under an earlier configuration."""


class SecretMask:
    """Takes secrets out of texts.

    Args:
        secrets: that are known.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= SECRET_MIN
            for form in (secret, quote(secret, safe=""), quote_plus(secret), _in_json(secret))
        }
        # The longest first: a part of a secret may be another one.
        ordered = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str) -> str:
        """Return a text without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


@dataclass
class Bundle:
    """An archive that is being made.

    Args:
        file: that it is written to, from its begin.
        mask: through which each text passes.
        part_seconds: for one part.
        all_seconds: for all of them.
    """

    file: IO[bytes]
    mask: SecretMask
    part_seconds: float = PART_SECONDS
    all_seconds: float = ALL_SECONDS
    sizes: dict[str, int] = field(default_factory=dict)
    """The bytes of each member."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why a part is not there."""

    def __post_init__(self) -> None:
        self._archive = tarfile.open(fileobj=self.file, mode="w:gz")  # noqa: SIM115 (``end`` closes it)
        self._until = clock.monotonic_seconds() + self.all_seconds

    def add(self, name: str, make: Make) -> None:
        """Add a part, or the line why it is not there.

        Args:
            name: of the member.
            make: returns its text.

        Raises:
            OSError: the archive cannot be written.
        """
        seconds = min(self.part_seconds, self._until - clock.monotonic_seconds())
        if seconds <= 0:
            self.failures[name] = f"not tried: the other parts took {self.all_seconds:.0f} s"
            return
        try:
            text = _in_time(make, seconds)
        except Exception as exc:
            # Whatever is wrong with this gateway, the other parts must be had.
            self.failures[name] = self.mask(_reason(exc))
            return
        self._write(name, text)

    def end(self, about: Iterable[str]) -> None:
        """Add the list of all parts, and complete the archive.

        Args:
            about: the lines with which the list begins.

        Raises:
            OSError: the archive cannot be written.
        """
        lines = [*about, ""]
        lines += [f"ok      {name}  {size:,} bytes" for name, size in self.sizes.items()]
        lines += [f"FAILED  {name}: {reason}" for name, reason in self.failures.items()]
        self._write("MANIFEST", "\n".join(lines) + "\n")
        self._archive.close()
        self.file.flush()

    def _write(self, name: str, text: str) -> None:
        content = self.mask(text).encode("utf-8", "backslashreplace")[:PART_BYTES_MAX]
        member = tarfile.TarInfo(f"spillway-support/{name}")
        member.size, member.mode = len(content), 0o600
        member.mtime = clock.now_ns() // clock.NS
        self._archive.addfile(member, io.BytesIO(content))
        self.sizes[name] = len(content)


def _reason(exc: Exception) -> str:
    """Return one line that says why a part is not there."""
    text = " ".join(str(exc).split())
    return text if text and not text.isdigit() else f"{type(exc).__name__} {text}".strip()


def _in_time(make: Make, seconds: float) -> str:
    """Return what a function returns, and raise what it raises. Raises TimeoutError. Its thread may
    then run on: nothing waits for it."""
    found: list[str] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            found.append(make())
        except Exception as exc:
            raised.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return found[0]


class NameMask:
    """Takes names that clients chose out of documents: each becomes ``name-N``, always the same.

    Args:
        export: the path that clients mount.
        known: values of the fields of such names that stay, like the data directory.
    """

    FIELDS = frozenset({"path", "new_path", "key", "job", "run", "first"})
    """The members that are such names, in all that the service returns and processes report."""

    def __init__(self, export: str, known: Iterable[str] = ()) -> None:
        self._names: dict[str, str] = {name: name for name in known}
        self._kept = len(self._names)
        self._below = re.compile(rf"{re.escape(export)}/[^\s\"',;:]+")

    def masked(self, document: Any) -> Any:
        """Return a document of JSON without names, also where texts quote those of its fields."""
        self._collect(document)
        known = sorted(self._names, key=len, reverse=True)
        names = "|".join(map(re.escape, known))
        quoted = re.compile(rf"(?<!\w)(?:{names})(?!\w)") if known else None
        return self._without(document, quoted)

    def _collect(self, document: Any, name: str = "") -> None:
        if isinstance(document, dict):
            for member, value in document.items():
                self._collect(value, member)
        elif isinstance(document, list):
            for value in document:
                self._collect(value)
        elif isinstance(document, str) and document and name in self.FIELDS:
            self._names.setdefault(document, f"name-{len(self._names) - self._kept + 1}")

    def _without(self, document: Any, quoted: re.Pattern[str] | None, name: str = "") -> Any:
        if isinstance(document, dict):
            return {
                member: self._without(value, quoted, member) for member, value in document.items()
            }
        if isinstance(document, list):
            return [self._without(value, quoted) for value in document]
        if not isinstance(document, str):
            return document
        if name in self.FIELDS:
            return self._names.get(document, document)
        # A state or a kind is one word, and must not be taken for a name.
        if quoted is not None and " " in document:
            document = quoted.sub(lambda match: self._names[match[0]], document)
        return self._below.sub(MASK, document)
