"""Optional model-side parts (token counters now; embedders and models later), imported lazily."""
