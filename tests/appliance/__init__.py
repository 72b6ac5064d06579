"""The package and the roles on a machine of their own: a Debian with systemd, under qemu."""
