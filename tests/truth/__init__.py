"""Measurements of a server whose truth is known, through a real socket."""
