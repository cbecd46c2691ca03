"""Collection from nodes: targets, transport, probe plans, journal of answers."""
