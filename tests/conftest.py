"""Fixtures that every test may use."""

from postgres_fixture import fresh_postgres_url, postgres_url

__all__ = ["fresh_postgres_url", "postgres_url"]
