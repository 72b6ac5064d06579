"""Tests of the command line: real processes, no NFS client."""
