"""Proof that the shipped coding problems tell right programs from wrong ones."""
