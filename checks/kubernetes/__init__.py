"""Checks of containers and device plug-ins."""
