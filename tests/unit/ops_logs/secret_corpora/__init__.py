"""Made-up secrets in the places where people write them, and lines that only speak of secrets."""
