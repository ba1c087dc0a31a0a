"""Memory for AI agents that survives crashes, knows where every fact came from, and can forget."""
