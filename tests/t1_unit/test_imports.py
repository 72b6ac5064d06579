"""Commands import only what they need: the client of the bucket takes half a second."""

from __future__ import annotations

import subprocess
import sys

IMPORT = "import gateway.cli.main, sys; print(*{name.split('.')[0] for name in sys.modules})"


def test_commands_do_not_import_the_client_of_the_bucket() -> None:
    found = subprocess.check_output([sys.executable, "-c", IMPORT], text=True).split()
    assert "gateway" in found
    assert {"boto3", "botocore", "urllib3"} & set(found) == set()
