"""The public face: these names and no others."""

from __future__ import annotations

import inspect

import engrain

PINNED = [
    "Approval",
    "AssistantMessage",
    "Audit",
    "Busy",
    "Conflict",
    "Corrupt",
    "EngrainError",
    "Episode",
    "EpisodeId",
    "Failure",
    "Hit",
    "LimitExceeded",
    "Memory",
    "NewEpisode",
    "NotFound",
    "OperationId",
    "Origin",
    "RecallBlock",
    "RecallItem",
    "Refused",
    "Scope",
    "Sensitivity",
    "Session",
    "SessionId",
    "SessionSnapshot",
    "SessionWriter",
    "StorageFull",
    "StoredEvent",
    "System",
    "ToolAuthority",
    "ToolCall",
    "ToolResult",
    "Turn",
    "Uncertain",
    "UserMessage",
    "__version__",
]


def test_the_public_names_are_the_pinned_ones_in_order() -> None:
    assert engrain.__all__ == PINNED
    assert sorted(PINNED) == PINNED


def test_nothing_else_of_ours_is_reachable_without_an_underscore() -> None:
    others = {
        name
        for name, value in vars(engrain).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert others <= set(PINNED)


def test_every_public_class_and_its_public_methods_say_what_to_rely_on() -> None:
    silent: list[str] = []
    for name in PINNED:
        value = getattr(engrain, name)
        if inspect.isclass(value):
            silent += [name] * (not (value.__doc__ or "").strip())
            silent += [
                f"{name}.{method}"
                for method, body in vars(value).items()
                if not method.startswith("_")
                and (inspect.isfunction(body) or isinstance(body, classmethod))
                and not (body.__doc__ or "").strip()
            ]
    assert silent == []


def test_the_services_of_a_memory_document_every_verb() -> None:
    with engrain.Memory.open(":memory:") as memory:
        services = {
            "sessions": memory.sessions,
            "enrichment": memory.enrichment,
            "imports": memory.imports,
        }
        silent = [
            f"{name}.{verb}"
            for name, service in services.items()
            for verb, body in vars(type(service)).items()
            if not verb.startswith("_") and inspect.isfunction(body) and not body.__doc__
        ]
        assert memory.recall.__call__.__doc__
    assert silent == []


def test_every_error_has_a_code_of_its_own_in_the_drawn_tree() -> None:
    from engrain.contracts import errors

    kinds = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, engrain.EngrainError)
    ]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert errors.__doc__ is not None
    drawn = [
        line.split("── ")[1].split()[0] for line in errors.__doc__.splitlines() if "── " in line
    ]
    assert sorted(drawn) == sorted(
        kind.__name__ for kind in kinds if kind is not engrain.EngrainError
    )
