"""Contracts that adapters and environments are held to; they ship so that third parties can use them, too."""
