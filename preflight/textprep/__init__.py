"""Removal of text added by terminals, launchers, mails and pages."""
