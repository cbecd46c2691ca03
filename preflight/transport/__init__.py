"""Transports: start a collector and return its document."""
