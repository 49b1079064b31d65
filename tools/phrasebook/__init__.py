"""The grammar behind the demo's English-German phrasebook."""
