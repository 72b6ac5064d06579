"""The namespace's database: tables, engine, compiled statements, the one writer."""
