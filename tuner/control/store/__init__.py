"""All that the daemon remembers, in SQLite."""
