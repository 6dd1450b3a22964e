"""The write statements that are not part of graphiti-core.

UUIDs are unique across groups, so statements that use them do not name the group. In FalkorDB a condition on
the group of a relationship would do harm: its index covers the whole graph, and a pattern without a direction
then finds only half of the matches. For the same reason names are compared through `toString`, which bypasses
the name index: a few entities have fewer facts than everyone with one name. Whatever may become NULL has its
own SET after a WITH: of several in one SET, FalkorDB 4.16 removes the wrong ones.
"""

from composable_memory_adapters.graphiti.reading.namesakes import KINDS

FACT = """
e.uuid AS uuid, e.own_id AS own_id, s.uuid AS source, t.uuid AS target, e.name AS relation, e.fact AS fact,
e.created_at AS created_at, e.episodes AS episodes, e.valid_at AS valid_at, e.invalid_at AS invalid_at,
e.expired_at AS expired_at, e.ends_at AS ends_at, e.retired_at AS retired_at,
e.reference_time AS reference_time, e.expires_at AS expires_at, e.confidence AS confidence,
e.exclusive AS exclusive, e.one_holder AS one_holder, e.ends AS ends, e.properties AS properties,
e.provenance AS provenance,
e.temporal AS temporal, e.told AS told,
coalesce(s.own_id, s.uuid) AS source_id, coalesce(t.own_id, t.uuid) AS target_id
"""
ENTITY = """
n.uuid AS uuid, n.own_id AS own_id, n.name AS name, n.created_at AS created_at, n.summary AS summary,
n.kind AS kind, n.properties AS properties, n.provenance AS provenance, n.temporal AS temporal
"""

ENTITIES = f"""
UNWIND $uuids AS uuid MATCH (n:Entity {{uuid: uuid}}) RETURN {ENTITY}
"""
DELETE_ENTITIES = """
UNWIND $uuids AS uuid MATCH (n:Entity {uuid: uuid}) DETACH DELETE n
"""

FACTS = f"""
UNWIND $uuids AS uuid MATCH ()-[e:RELATES_TO {{uuid: uuid}}]->()
WITH e, startNode(e) AS s, endNode(e) AS t RETURN {FACT}
"""
OF_RELATION = f"""
UNWIND $pairs AS pair MATCH (s:Entity {{uuid: pair.source}})-[e:RELATES_TO]->(t:Entity)
WHERE toString(e.name) = pair.relation RETURN {FACT}
"""
OF_HOLDERS = f"""
UNWIND $pairs AS pair MATCH (s:Entity)-[e:RELATES_TO]->(t:Entity {{uuid: pair.target}})
WHERE toString(e.name) = pair.relation RETURN {FACT}
"""
BETWEEN = f"""
UNWIND $pairs AS pair MATCH (s:Entity {{uuid: pair.source}}) MATCH (t:Entity {{uuid: pair.target}})
MATCH (s)-[e:RELATES_TO]->(t) WHERE toString(e.name) = pair.relation
  AND (pair.ends OR e.own_id IN pair.own_ids OR e.uuid IN pair.own_ids
    OR coalesce(e.exclusive, false) OR coalesce(e.ends, false))
RETURN {FACT}
"""
# The range condition uses the index on names.
NAMESAKES = f"""
UNWIND $uuids AS uuid MATCH (one:Entity {{uuid: uuid}})
WITH DISTINCT split(one.name, ' ')[0] AS first, one.group_id AS group
MATCH (n:Entity) WHERE n.name >= first AND n.name < first + '!' AND n.group_id = group
  AND coalesce(n.kind, '') IN {list(KINDS)}
RETURN first, n.uuid AS id, n.name AS name, n.kind AS kind
"""
BETWEEN_TWO = """
UNWIND $pairs AS pair MATCH (one:Entity {uuid: pair.first})-[:RELATES_TO]-(:Entity {uuid: pair.full})
RETURN DISTINCT one.uuid AS first
"""
ENDING_ABOUT = f"""
UNWIND $uuids AS uuid MATCH (n:Entity {{uuid: uuid}})-[e:RELATES_TO]-(:Entity)
WHERE coalesce(e.exclusive, false) OR coalesce(e.one_holder, false) OR coalesce(e.ends, false)
WITH DISTINCT e, startNode(e) AS s, endNode(e) AS t RETURN {FACT}
"""
SET_TIMES = """
UNWIND $facts AS fact MATCH ()-[e:RELATES_TO {uuid: fact.uuid}]->()
SET e.invalid_at = fact.invalid_at WITH fact, e SET e.expired_at = fact.expired_at
WITH fact, e SET e.retired_at = fact.retired_at WITH fact, e SET e.valid_at = fact.valid_at
"""
DELETE_FACTS = """
UNWIND $uuids AS uuid MATCH ()-[e:RELATES_TO {uuid: uuid}]->() DELETE e
"""

EPISODES = """
UNWIND $uuids AS uuid MATCH (p:Episodic {uuid: uuid})
RETURN p.uuid AS uuid, p.name AS name, p.content AS content, p.source AS source,
  p.source_description AS description, p.valid_at AS valid_at, p.entity_edges AS facts,
  p.retired_at AS retired_at
"""
NAMED_EPISODES = """
MATCH (p:Episodic) WHERE p.group_id = $group_id AND (p.uuid = $id OR p.name = $id)
RETURN p.uuid AS uuid ORDER BY p.uuid = $id DESC LIMIT 1
"""
FACTS_OF_EPISODES = f"""
UNWIND $uuids AS uuid MATCH (p:Episodic {{uuid: uuid}})-[:MENTIONS]->(s:Entity)
WITH s, collect(uuid) AS uuids MATCH (s)-[e:RELATES_TO]->(t:Entity)
WHERE any(one IN e.episodes WHERE one IN uuids) RETURN {FACT}
"""
ADD_FACTS_TO_EPISODES = """
UNWIND $links AS link MATCH (p:Episodic {uuid: link.episode})
SET p.entity_edges = [one IN coalesce(p.entity_edges, []) WHERE NOT one IN link.facts] + link.facts
"""
RETIRE_EPISODES = """
UNWIND $uuids AS uuid MATCH (p:Episodic {uuid: uuid})
SET p.retired_at = coalesce(p.retired_at, $at) WITH p SET p.read_at = NULL
"""
RETIRED = """
UNWIND $uuids AS uuid MATCH (p:Episodic {uuid: uuid}) WHERE p.retired_at IS NOT NULL
RETURN p.uuid AS uuid, p.retired_at AS retired_at
"""
RESTORE_EPISODES = """
UNWIND $uuids AS uuid MATCH (p:Episodic {uuid: uuid}) SET p.retired_at = NULL
"""
MOVE_FACTS = """
UNWIND $uuids AS uuid MATCH ()-[e:RELATES_TO {uuid: uuid}]->()
SET e.episodes = [one IN e.episodes WHERE NOT one IN $episodes AND one <> $merged] + [$merged],
  e.told = [one IN coalesce(e.told, []) |
    CASE WHEN left(one, 36) IN $episodes THEN $merged + substring(one, 36) ELSE one END]
"""
MENTIONED = """
MATCH (p:Episodic)-[:MENTIONS]->(n:Entity) WHERE p.uuid IN $uuids
RETURN DISTINCT n.uuid AS uuid
"""
MARK_AS_READ = """
UNWIND $uuids AS uuid MATCH (p:Episodic {uuid: uuid}) SET p.read_at = $at
"""
DELETE_EPISODES = """
UNWIND $uuids AS uuid MATCH (p:Episodic {uuid: uuid}) DETACH DELETE p
"""
CUT_EPISODE = """
UNWIND $uuids AS uuid MATCH ()-[e:RELATES_TO {uuid: uuid}]->()
SET e.episodes = [one IN e.episodes WHERE one <> $episode],
  e.told = [one IN coalesce(e.told, []) WHERE left(one, 36) <> $episode]
"""
PUT_FACTS_FOR_OTHERS = """
UNWIND $pairs AS pair MATCH (p:Episodic) WHERE p.uuid IN pair.episodes
SET p.entity_edges = [one IN p.entity_edges | CASE WHEN one = pair.other THEN pair.uuid ELSE one END]
"""
ORPHANS = """
MATCH (p:Episodic {uuid: $episode})-[:MENTIONS]->(n:Entity)
OPTIONAL MATCH (n)-[e:RELATES_TO]-() WITH DISTINCT n, count(e) AS facts WHERE facts = 0
OPTIONAL MATCH (other:Episodic)-[:MENTIONS]->(n) WHERE other.uuid <> $episode
WITH n, count(other) AS others WHERE others = 0 RETURN DISTINCT n.uuid AS uuid
"""

TOUCHING = f"""
UNWIND $uuids AS uuid MATCH (n:Entity {{uuid: uuid}})-[e:RELATES_TO]-(:Entity)
WITH DISTINCT e, startNode(e) AS s, endNode(e) AS t RETURN {FACT} ORDER BY created_at, uuid LIMIT $limit
"""
FIND_ENTITIES = {
    "falkordb": f"""
CALL db.idx.fulltext.queryNodes('Entity', $text) YIELD node, score
WITH node AS n, score WHERE n.group_id = $group_id RETURN {ENTITY}, score
ORDER BY score DESC, uuid LIMIT $limit
""",
    "neo4j": f"""
CALL db.index.fulltext.queryNodes('node_name_and_summary', $text) YIELD node, score
WITH node AS n, score WHERE n.group_id = $group_id RETURN {ENTITY}, score
ORDER BY score DESC, uuid LIMIT $limit
""",
}
