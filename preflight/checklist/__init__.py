"""Checklists of the documents: items, their questions, and the checks that answer."""
