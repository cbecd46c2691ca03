"""Transports: start a collector and bring its document back."""
