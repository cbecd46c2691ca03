"""Removal of text that terminals, launchers, email and web pages add."""
