"""Pure decisions: no I/O, no clock, no SQL."""
