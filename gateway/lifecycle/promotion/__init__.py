"""Promotions: copies of checkpoints that stay until a person demotes them."""
