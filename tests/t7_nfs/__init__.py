"""Tests through the kernel's NFSv4 client."""
