"""Kills at random moments while writers log every answer, and the comparison afterwards."""
