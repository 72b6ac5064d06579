"""Access to the admin API: who asks, and what they may do."""
