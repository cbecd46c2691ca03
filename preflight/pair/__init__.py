"""Point-to-point tests between two nodes: a server on one, a client on the other, and the evidence of both.

What was run and what it said stands in the nodes' own evidence: ``pair:TEST`` holds the side and its settings, the
record of the command its output. ``preflight.checks.pair.bandwidth`` judges nothing but that.
"""
