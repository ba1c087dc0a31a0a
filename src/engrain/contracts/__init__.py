"""Nouns, protocols, limits and errors. Imports nothing of ours."""
