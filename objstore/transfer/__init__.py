"""Stores that meet: what one lacks is worked out, sent, checked, and only then seen."""
