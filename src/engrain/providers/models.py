"""Clients of the models that sessions are bound to, made by pydantic-ai when they are asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engrain.contracts.errors import InvalidValue
from engrain.contracts.models import InstalledModel, Model, ProviderModel

if TYPE_CHECKING:
    from pydantic_ai.models import Model as Client

_NO_KEY = "no-key"
"""What a server on this machine is given when no key was named; the client wants one."""


def open_client(model: Model) -> Client:
    """The client of a model. Asks nothing of it yet.

    An endpoint speaks OpenAI's protocol, as llama.cpp's server, Ollama, vLLM and others do. Raises
    `InvalidValue` for files, which need a server, and for a key whose variable is not set.
    """
    if isinstance(model, InstalledModel):
        raise InvalidValue(
            "model",
            "is files of this machine: start a server with them, and add that with --endpoint",
        )
    if model.endpoint is not None:
        return _client_at(model, model.endpoint)
    return client_named(f"{model.provider}:{model.model}")


def client_named(name: str) -> Client:
    """The client that pydantic-ai calls so: `openai:gpt-5`, `anthropic:claude-opus-4-5`, …"""
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    try:
        return infer_model(name)
    except (UserError, ImportError, ValueError) as error:
        raise InvalidValue("model", f"cannot be used: {error}") from None


def _client_at(model: ProviderModel, endpoint: str) -> Client:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    key = _NO_KEY if model.key_variable is None else os.environ.get(model.key_variable)
    if not key:
        raise InvalidValue(
            "model", f"its key is expected in {model.key_variable}, which is not set"
        )
    return OpenAIChatModel(model.model, provider=OpenAIProvider(base_url=endpoint, api_key=key))
