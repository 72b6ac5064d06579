"""Sizing a gateway, and configuring a machine that was started from an image."""
