"""The node side: runs a probe plan and returns a framed Evidence document."""
