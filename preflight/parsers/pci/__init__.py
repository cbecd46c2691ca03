"""Parsers of the output of ``lspci``."""
