"""What terminals, launchers, mails and pages did to a text, undone."""
