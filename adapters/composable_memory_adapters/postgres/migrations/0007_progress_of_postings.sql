-- The last passage whose words are among the postings, while these are made step by step.
ALTER TABLE workspaces ADD COLUMN indexed_to bigint NOT NULL DEFAULT 0;
