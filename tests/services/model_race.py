"""`python -m services.model_race HOME bind|remove SESSION`: one side of a race, begun by a line."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

from engrain import Memory, SessionId
from engrain.contracts.errors import EngrainError
from engrain.contracts.models import MODEL_KEY, model_builtins
from engrain.contracts.snapshots import SessionSnapshot
from engrain.memory import open_models
from engrain.system.home import Home
from services.exports import ANA


def main(folder: str, task: str, session: str) -> None:
    home = Home(Path(folder))
    models = open_models(home)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    try:
        if task == "remove":
            models.remove("small")
        else:
            bind(home, SessionId(UUID(session)))
        sys.stdout.write("done\n")
    except EngrainError as error:
        sys.stdout.write(f"{error.code}\n")


def bind(home: Home, session_id: SessionId) -> None:
    models = open_models(home)
    with Memory.open(home.database) as memory, memory.sessions.lease(ANA, session_id) as writer:
        model = models.read("small").model
        with models.bind(model) as held:
            writer.bind_snapshot(SessionSnapshot(configuration={MODEL_KEY: model_builtins(held)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
