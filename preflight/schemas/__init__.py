"""The JSON Schemas of what goes in and out."""
