"""Enters the memory in the configuration files of agents, and takes it out again (`cmem connect`)."""
