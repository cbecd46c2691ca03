"""Fast tests, by package of the product."""
