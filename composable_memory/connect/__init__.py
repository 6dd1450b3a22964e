"""Adds the memory to the configuration files of agents, and removes it again (`cmem connect`)."""
