"""What is known about an entity or a time: retained lines, facts and passages, each with its source."""
