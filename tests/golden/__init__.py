"""Texts in the form of real tools, with their facts stated by hand."""
