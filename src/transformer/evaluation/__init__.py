"""Evaluation of translations, with signatures that make scores comparable."""
