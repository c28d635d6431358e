"""A fake SGLang: a real process that a scenario file scripts."""
