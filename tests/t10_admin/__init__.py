"""The admin API: its routes, who may call them, its pages."""
