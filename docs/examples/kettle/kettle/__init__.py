"""A model server of a few lines, its adapter for servetune, a simulation of it, and an agent."""
