"""Parsers of the output of RDMA tools: ports, GIDs, counters."""
