"""The documents' checklists: items, the questions of each, and their answers by checks."""
