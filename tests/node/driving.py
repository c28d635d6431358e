"""Drives a study to its end, over a surface of known speed."""

from tests.builders import record, surface


def measured(sweep, proposal):
    """The record of a trial that went well."""
    return record(sweep, proposal, surface(proposal.config))


def drive(study, sweep, outcome=measured, stop=lambda asked: False):
    """Ask and tell one after the other; returns what was asked and what was told."""
    asked, told = [], []
    while not stop(asked) and (proposal := study.ask()) is not None:
        assert len(asked) < 500
        asked.append(proposal)
        told.append(outcome(sweep, proposal))
        study.tell(told[-1])
    return asked, told
