"""Tools for a workspace: reading is free, writing and commands need a person's word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engrain.agent.toolbox.arguments import made_tool
from engrain.agent.toolbox.files import FILE_TOOLS
from engrain.agent.toolbox.searching import SEARCH_TOOLS
from engrain.agent.toolbox.shell import SHELL_TOOL
from engrain.agent.tools import Tool
from engrain.system.confined import ConfinedFolder


def built_in_tools(root: Path, *, forbidden: Sequence[Path] = ()) -> tuple[Tool, ...]:
    """The tools of `engrain chat`, confined to `root`; `forbidden` are the memory's databases.

    The shell runs in `root` and is not confined to it: it runs what a person allowed.
    """
    folder = ConfinedFolder(root, forbidden=forbidden)
    made = (*FILE_TOOLS, *SEARCH_TOOLS, SHELL_TOOL)
    return tuple(made_tool(one, folder) for one in made)
