"""How a tool of the toolbox is described, and its arguments are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from engrain.agent.tools import Tool, ToolContext, ToolFailure
from engrain.contracts.errors import EngrainError
from engrain.system.confined import ConfinedFolder


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A tool before it has a folder: `run` gets the folder, the arguments and the call."""

    description: str
    arguments: type[msgspec.Struct]
    run: Callable[[ConfinedFolder, Any, ToolContext], str]
    name: str
    needs_approval: bool = False


def made_tool(recipe: Recipe, folder: ConfinedFolder) -> Tool:
    """The recipe as a tool that works in `folder` and says what went wrong in words."""

    def run(context: ToolContext, arguments: dict[str, Any]) -> str:
        try:
            given = msgspec.convert(arguments, recipe.arguments)
            return recipe.run(folder, given, context)
        except msgspec.ValidationError as error:
            raise ToolFailure(f"Wrong arguments: {error}") from None
        except EngrainError as error:
            raise ToolFailure(error.message) from None
        except OSError as error:
            raise ToolFailure(f"{error.strerror or type(error).__name__}.") from None

    return Tool(
        name=recipe.name,
        description=recipe.description,
        schema=_schema_of(recipe.arguments),
        run=run,
        implementation=f"engrain.toolbox.{recipe.name}:1",
        needs_approval=recipe.needs_approval,
    )


def _schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """One object without references, as every model provider takes it."""
    _, components = msgspec.json.schema_components([arguments], ref_template="{name}")
    schema: dict[str, Any] = components[arguments.__name__]
    schema.pop("title", None)
    return {key: value for key, value in schema.items() if key != "description"}
