"""Saves by the real libraries through the kernel's NFS client: ``make frameworks``."""
