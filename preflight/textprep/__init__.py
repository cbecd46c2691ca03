"""Removal of text that terminals, launchers, mail and web pages add."""
