"""One behaviour suite a noun, parametrised over engines."""
