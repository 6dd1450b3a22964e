"""The indexes of a graph: those that graphiti-core makes, but none on times.

FalkorDB keeps times as texts, and answers wrongly when it compares texts by means of a range index.
"""

STOPWORDS = (
    "a is the an and are as at be but by for if in into it no not of on or such "
    "that their then there these they this to was will with"
).split()
"""Those of graphiti-core, so that it finds its own index made when it makes it."""

FALKORDB = (
    # Ranges first: looking something up fails where the full text of a property was indexed before.
    "CREATE INDEX FOR (n:Entity) ON (n.uuid, n.group_id, n.name)",
    "CREATE INDEX FOR (n:Episodic) ON (n.uuid, n.group_id, n.name)",
    "CREATE INDEX FOR ()-[e:RELATES_TO]-() ON (e.uuid, e.group_id, e.name)",
    "CREATE INDEX FOR ()-[e:MENTIONS]-() ON (e.uuid, e.group_id)",
    f"""CREATE FULLTEXT INDEX FOR (n:Episodic) ON (n.content, n.source, n.source_description, n.group_id)
    OPTIONS {{stopwords: {STOPWORDS}}}""",
    f"""CREATE FULLTEXT INDEX FOR (n:Entity) ON (n.name, n.summary, n.group_id)
    OPTIONS {{stopwords: {STOPWORDS}}}""",
    "CREATE FULLTEXT INDEX FOR ()-[e:RELATES_TO]-() ON (e.name, e.fact, e.group_id)",
)

UNFINISHED = "CALL db.indexes() YIELD status WHERE status <> 'OPERATIONAL' RETURN status"
"""Finds the indexes of FalkorDB that are still being built, in the background."""

NEO4J = (
    "CREATE INDEX entity_uuid IF NOT EXISTS FOR (n:Entity) ON (n.uuid)",
    "CREATE INDEX episode_uuid IF NOT EXISTS FOR (n:Episodic) ON (n.uuid)",
    "CREATE INDEX relation_uuid IF NOT EXISTS FOR ()-[e:RELATES_TO]-() ON (e.uuid)",
    "CREATE INDEX mention_uuid IF NOT EXISTS FOR ()-[e:MENTIONS]-() ON (e.uuid)",
    "CREATE INDEX entity_group_id IF NOT EXISTS FOR (n:Entity) ON (n.group_id)",
    "CREATE INDEX episode_group_id IF NOT EXISTS FOR (n:Episodic) ON (n.group_id)",
    "CREATE INDEX relation_group_id IF NOT EXISTS FOR ()-[e:RELATES_TO]-() ON (e.group_id)",
    "CREATE INDEX mention_group_id IF NOT EXISTS FOR ()-[e:MENTIONS]-() ON (e.group_id)",
    "CREATE INDEX name_entity_index IF NOT EXISTS FOR (n:Entity) ON (n.name)",
    "CREATE INDEX name_edge_index IF NOT EXISTS FOR ()-[e:RELATES_TO]-() ON (e.name)",
    """CREATE FULLTEXT INDEX episode_content IF NOT EXISTS
    FOR (e:Episodic) ON EACH [e.content, e.source, e.source_description, e.group_id]""",
    """CREATE FULLTEXT INDEX node_name_and_summary IF NOT EXISTS
    FOR (n:Entity) ON EACH [n.name, n.summary, n.group_id]""",
    """CREATE FULLTEXT INDEX edge_name_and_fact IF NOT EXISTS
    FOR ()-[e:RELATES_TO]-() ON EACH [e.name, e.fact, e.group_id]""",
)
