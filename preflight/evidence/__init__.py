"""Evidence: its document, bundles of it, and bounded reading of what others wrote."""
