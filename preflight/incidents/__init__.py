"""Findings joined into causes: one incident for all that a single fault explains.

A module here takes the results of the judge and returns incidents; it reads no evidence and renders nothing. The
package sits between ``judge``, which it may import, and ``reports`` and ``commands``, which show what it returns.
"""
