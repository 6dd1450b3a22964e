"""What agents call at the turning points of a session, and what happens in one, as events, into a memory."""
