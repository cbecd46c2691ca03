"""Aliases for what identifies a site, so that evidence, reports and logs can be shown to others.

Hosts, addresses, GUIDs, LIDs, serial numbers, users and names of jobs are replaced, each by the same alias wherever it
stands in one run. What checks compare is kept: equality, subnets, the makers of devices, the numbers of hosts. So the
verdicts on redacted evidence are those on the original.
"""

from preflight.redact.redactor import Redactor

__all__ = ["Redactor"]
