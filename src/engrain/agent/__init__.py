"""One agent's life on top of the record. Empty until its first piece lands."""
