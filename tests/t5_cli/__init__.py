"""Tests of the command line, with real processes and without an NFS client."""
