"""Helpers that several tests share: servers, clients, proxies, disks."""
