"""What is known of somebody, or of a time: retained lines, facts and passages, each with its source."""
