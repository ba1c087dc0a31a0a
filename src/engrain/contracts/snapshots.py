"""What a session was made with: semantic configuration and exact tool authority."""

from __future__ import annotations

from typing import Any

import msgspec


class ToolAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """One tool that the session may ever call."""

    name: str
    schema: dict[str, Any]
    implementation: str
    limits: dict[str, int] = {}


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Written once, only for an empty session; a resume must offer the identical one."""

    configuration: dict[str, Any]
    tools: tuple[ToolAuthority, ...] = ()
