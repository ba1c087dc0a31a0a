"""Keeps rows. One set of stores, two engines."""
