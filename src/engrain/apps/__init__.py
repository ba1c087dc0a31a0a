"""Faces: people and programs reach the memory here. No decisions."""
