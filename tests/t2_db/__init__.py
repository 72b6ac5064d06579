"""Layer 2: the database: schema, engine, writer."""
