"""Modules that only exist to make start-up fast."""
