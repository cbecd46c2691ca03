"""What tests are built from: farms, machines, clusters, generators, registries."""
