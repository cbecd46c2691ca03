"""Check of the site's waivers."""
