"""The same core that serves, in a world that can be explored: every order, every fault."""
