"""Texts in the form of real tools, with the facts in them stated by hand."""
