"""What acts on one machine, without Ray."""
