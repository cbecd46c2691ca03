"""Checklists for operators: items, their questions, and the checks that answer."""
