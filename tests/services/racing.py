"""What the processes of a race do; they find it here by name."""

from __future__ import annotations

from pathlib import Path

from engrain.contracts.imports import ImportReport
from engrain.testing.races import Racer
from services.exports import ANA


def import_file(racer: Racer, path: Path) -> ImportReport:
    """One process imports the path, as `engrain import` does."""
    return racer.stores.memory.imports.run(ANA, path)
