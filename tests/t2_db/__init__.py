"""Layer 2: the database, with its schema, its engines and its writer."""
