"""What agents call at certain points of a session, and what happens in it, recorded as events in a memory."""
