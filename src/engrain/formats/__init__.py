"""Pure parsers of other people's conversation files into contract values."""
