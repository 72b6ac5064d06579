#!/bin/sh
# Packs what names the packages of the image, and the libraries of the virtual environment.
set -eu
cd /
tar -cf /tmp/contents.tar usr/lib/os-release etc/os-release var/lib/dpkg/status \
    usr/share/doc/*/copyright usr/lib/spillway/venv/lib/python3*/site-packages/*.dist-info
chmod 0644 /tmp/contents.tar
