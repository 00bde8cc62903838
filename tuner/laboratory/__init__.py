"""The laboratory: agents learn in environments and are compared; models of live servers are fitted."""
