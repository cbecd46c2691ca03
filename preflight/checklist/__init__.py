"""Checklists of the documents: items, their questions, and answers by checks."""
