"""Memory for AI agents that survives crashes, knows where every fact came from, and can forget.

    from engrain import Memory, Scope, Turn

The names below are the public face; everything else may move.
"""

from engrain.contracts.episodes import Episode, Hit, NewEpisode
from engrain.contracts.errors import (
    Busy,
    Conflict,
    Corrupt,
    EngrainError,
    LimitExceeded,
    NotFound,
    Refused,
    StorageFull,
    Uncertain,
)
from engrain.contracts.events import (
    Approval,
    AssistantMessage,
    Audit,
    Failure,
    StoredEvent,
    System,
    ToolCall,
    ToolResult,
    Turn,
    UserMessage,
)
from engrain.contracts.ids import EpisodeId, OperationId, SessionId
from engrain.contracts.recall import RecallBlock, RecallItem
from engrain.contracts.scope import Origin, Scope, Sensitivity
from engrain.contracts.sessions import Session
from engrain.contracts.snapshots import SessionSnapshot, ToolAuthority
from engrain.memory import Memory
from engrain.services.sessions import SessionWriter

__version__ = "0.1.0"

__all__ = [
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
