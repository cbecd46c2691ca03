"""Replacement of data that identifies a site, so that files can be shared."""

from preflight.redact.redactor import Redactor

__all__ = ["Redactor"]
