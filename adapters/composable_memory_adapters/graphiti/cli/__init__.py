"""The commands of `cmem graph`: what a memory of facts shows of itself on the command line."""
