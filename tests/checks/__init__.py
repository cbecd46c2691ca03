"""Tests of each check: its fixtures, its page, its checklist items, plug-ins."""
