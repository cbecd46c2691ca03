"""Modules that make start-up fast."""
