"""Waits, retries and joins what stores and formats offer. Reaches both through contracts."""
