"""Pure decisions: everything a number depends on, and no socket, file, process or clock."""
