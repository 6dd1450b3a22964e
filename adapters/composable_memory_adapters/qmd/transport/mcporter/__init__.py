"""Asks QMD through mcporter, a command that calls the tools of MCP servers.

mcporter is pointed at a configuration of ours, in which `server_name` is this memory's own QMD. A server of
that name in the user's own configuration is passed over: it would answer from the user's own index, where
this memory's collections are unknown, and QMD finds nothing in an unknown collection without a word of it.
Nor are the configurations of editors read, in which mcporter looks by itself. Whoever wants another
configuration names it in the command: with `mcporter --config FILE`, that file alone decides who is asked. A
command in it is started here, with the environment of this memory's QMD and so with its index; a URL in it
may be anywhere, and questions go there.

mcporter's daemon keeps a server, and the models in it, for the questions to come. It runs as a child of ours
and in a folder of its own, as one that mcporter detaches would outlive us: while ours does not run, a
question starts a server for itself.
"""

from composable_memory_adapters.qmd.transport.mcporter.asking import Mcporter, lacking

__all__ = ["Mcporter", "lacking"]
