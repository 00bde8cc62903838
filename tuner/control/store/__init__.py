"""The daemon's memory in SQLite: windows, decisions, orders and policies."""
