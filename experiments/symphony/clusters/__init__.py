"""The clusters that several figures of Symphony share, and how their goodput is searched."""
