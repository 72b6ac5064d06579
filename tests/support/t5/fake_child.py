"""Stands in for the children of `up`: a real process that serves nothing.

As the server (`-f ganesha.conf -L log`) it opens the port of that file; else it prints a line. A
file ``behaviour`` beside this one changes its behaviour: ``die`` makes it exit at once,
``stubborn`` makes it ignore SIGTERM.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from pathlib import Path

BEHAVIOUR = Path(__file__).with_name("behaviour")


def main() -> None:
    if sys.argv[1:] == ["-v"]:  # as the server answers
        print("NFS-Ganesha Release = V4.3")
        return
    is_server = "-f" in sys.argv
    behaviour = BEHAVIOUR.read_text().split() if BEHAVIOUR.exists() else []
    secrets = sorted(name for name in os.environ if name.startswith("AWS_"))
    kept = sorted(name for name in os.environ if name.startswith("SPILLWAY_TEST"))
    signal.signal(
        signal.SIGTERM,
        signal.SIG_IGN if "stubborn" in behaviour else lambda *_: sys.exit(0),
    )
    # Tests send SIGTERM when they have seen this line.
    print(f"environment {secrets} {kept}", flush=True)
    if is_server:
        with Path(sys.argv[sys.argv.index("-L") + 1]).open("a") as log:
            log.write("a line of the server's log\n")
        if "die" in behaviour:
            sys.exit(7)
        conf = Path(sys.argv[sys.argv.index("-f") + 1]).read_text()
        match = re.search(r"NFS_Port = (\d+);", conf)
        assert match is not None
        with socket.create_server(("127.0.0.1", int(match[1]))) as server:
            while True:
                server.accept()[0].close()
    while True:
        signal.pause()


main()
