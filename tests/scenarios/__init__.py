"""Complete nodes and fleets: healthy ones raise nothing, a planted fault exactly its findings."""
