"""A real NFSv4 client for tests: Debian's own kernel, booted under qemu."""
