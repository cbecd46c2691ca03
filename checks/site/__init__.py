"""Checks of the site's own exceptions."""
