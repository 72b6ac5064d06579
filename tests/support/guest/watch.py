"""Tells the host again and again what a directory has, after asking which rename was answered.

watch.py HOST PORT STRICT USUAL

STRICT and USUAL are the same directory by two mounts. It has one file, n0 at first, which the host
renames to n1, n2, ... The host answers each line with the number of the last answered rename. Then
a line tells the names by STRICT, whether STRICT has the name before that number, and the names by
USUAL. The program ends when the host ends the connection.
"""

from __future__ import annotations

import os
import socket
import sys


def main() -> None:
    host, port, strict, usual = sys.argv[1:]
    with socket.create_connection((host, int(port))) as connection, connection.makefile() as said:
        connection.sendall(b"ready\n")
        for line in said:
            before = f"{strict}/n{int(line) - 1}"
            seen = ",".join(os.listdir(strict))
            found = f"{seen} {int(os.path.exists(before))} {','.join(os.listdir(usual))}\n"
            connection.sendall(found.encode())


if __name__ == "__main__":
    main()
