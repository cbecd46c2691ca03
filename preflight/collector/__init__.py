"""The node side: runs a plan of probes and answers with one framed Evidence document.

The package is shipped to nodes as source, so it imports only the standard library, runs on every
Python from 3.6 on, and writes nothing on the node. It interprets nothing: what was seen, what was
not there, what was refused and what hung are told apart, and the rest is left to the judge.
"""
