-- The quality of backends is counted from the judgements, and no proposal is tried on later queries any more.
DROP TABLE backend_queries;
DROP TABLE shadows;
