"""Evidence: documents, bundles, and bounded reading of untrusted files."""
