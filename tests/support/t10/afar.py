"""A gateway that the command line asks by the admin API: the real application, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from admin_api.access.principal import Role
from tests.support.adminsite import AdminSite, admin_site
from tests.support.t10.filled import Filled


class Afar(Filled):
    """A gateway without files, and a directory that has a file with a token for each role."""

    def __init__(self, site: AdminSite, files: Path) -> None:
        super().__init__(site)
        self._files = files
        for role in Role:
            path = files / role.word
            path.write_text(site.token(role))
            path.chmod(0o600)
        site.http.headers["Authorization"] = f"Bearer {(files / Role.ADMIN.word).read_text()}"

    def options(self, role: str = "admin") -> list[str]:
        """Return the options that stand before a command."""
        url = str(self.http.base_url).removesuffix("/").removesuffix("/api/v1")
        return ["--gateway", url, "--token-file", str(self._files / role)]


@contextmanager
def afar(directory: Path) -> Iterator[Afar]:
    """Serve the admin API of a gateway.

    Args:
        directory: empty, for all that it keeps.
    """
    with admin_site(directory, principal=None) as site:
        yield Afar(site, directory)
