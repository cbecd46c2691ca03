"""Tests of the tree itself: imports, names, registry, generated files, documentation."""
