"""Routes of ``/api/v1``: one module for each group of resources."""
