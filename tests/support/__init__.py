"""Building blocks of tests: farms, machines, clusters, generators, registries."""
