"""Removal of what terminals, launchers, mails and pages add to a text."""
