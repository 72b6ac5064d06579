"""The processes of the gateway, how they start and end, and what supervises them."""
