"""Pure parsers of other people's conversation files, and our own archive.

Bytes become `contracts.imports` values; nothing here opens a path, keeps a row or knows a clock.
`registry` says which formats there are.
"""
