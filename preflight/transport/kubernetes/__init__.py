"""Pods through ``kubectl exec``."""
