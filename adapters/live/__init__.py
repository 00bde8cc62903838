"""What adapters to live servers have in common, so that each holds only what its server does differently."""
