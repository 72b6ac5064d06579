"""The routes of ``/api/v1``: one module for each noun."""
