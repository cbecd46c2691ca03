"""Collecting from nodes: which, how, with which plan; a journal of answers."""
