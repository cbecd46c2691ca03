"""Removal of text added by terminals, launchers, mail and pages."""
