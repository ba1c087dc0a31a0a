"""The SQLite engine: APSW connection, file safety, named SQL, migrations."""
