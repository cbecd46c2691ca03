"""A made-up cluster with faults as package data; see tests/support/machines."""
