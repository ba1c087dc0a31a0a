"""The PostgreSQL engine: psycopg pool, named SQL, migrations."""
