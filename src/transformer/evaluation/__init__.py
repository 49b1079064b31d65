"""How good translations are, with signatures that say how it was measured."""
