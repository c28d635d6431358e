"""The built-in engine: its models, decoding, scheduling and HTTP surface."""
