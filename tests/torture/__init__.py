"""kill -9 at random moments under writers that log every answer, and the comparison afterwards."""
