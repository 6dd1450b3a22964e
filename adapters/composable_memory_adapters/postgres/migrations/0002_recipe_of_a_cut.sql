-- How each root last cut a file: roots that cut differently leave each other's notes as they are.
-- Empty where that is not known yet: the next sync of the root reads the file again, and writes what differs.
ALTER TABLE copies ADD COLUMN recipe text NOT NULL DEFAULT '';
