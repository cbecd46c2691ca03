"""How it is told: the report document rendered as text, HTML, JSON, JUnit XML and Prometheus metrics."""
