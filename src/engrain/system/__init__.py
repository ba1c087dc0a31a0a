"""What the machine gives: clock, ids, locks, files, workspace identity."""
