"""Marian, the family of the OPUS-MT translators."""
