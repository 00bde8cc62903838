"""The laboratory: agents learn in environments and are compared; models of live servers are fitted."""

from tuner.laboratory.agent_run import AgentRun, RunSpec, run_agent

__all__ = ["AgentRun", "RunSpec", "run_agent"]
