"""Guest program that tells the host again and again which names a directory has.

    watch.py HOST PORT STRICT KEEPING...

STRICT and each KEEPING are the same directory by another mount. It has one file, n0 at first, which
the host renames to n1, n2, ... The host answers each line with the number of the last answered
rename. Then a line tells the names by STRICT, whether STRICT opens the name before that number, and
the names by each KEEPING. These are opened once, because each open of a directory asks the server
for its attributes. The program ends when the host ends the connection.
"""

from __future__ import annotations

import os
import socket
import sys


def opens(path: str) -> bool:
    """Return whether there is a file to open. The server is asked for the OPEN itself."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except FileNotFoundError:
        return False
    return True


def main() -> None:
    host, port, strict, *others = sys.argv[1:]
    keeping = [os.open(directory, os.O_RDONLY) for directory in others]
    with socket.create_connection((host, int(port))) as connection, connection.makefile() as said:
        connection.sendall(b"ready\n")
        for line in said:
            seen = ",".join(os.listdir(strict))
            has_old = opens(f"{strict}/n{int(line) - 1}")
            kept = [",".join(os.listdir(directory)) for directory in keeping]
            connection.sendall(f"{' '.join([seen, str(int(has_old)), *kept])}\n".encode())


if __name__ == "__main__":
    main()
