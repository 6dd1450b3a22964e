"""Jobs of providers: thousands of texts left with a provider at once, and fetched later."""
