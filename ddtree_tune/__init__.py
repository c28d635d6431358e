"""Finds the draft-tree settings that serve a model fastest.

core decides and touches nothing; node acts on one machine; cluster is Ray; builtin is the embedded
engine; trial tells the story of one configuration on one node; run and cli are the command.
"""

__version__ = "0.1.0"
