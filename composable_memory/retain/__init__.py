"""What an agent retains: typed, attributed lines in the notes of its days, for people to read and edit."""
