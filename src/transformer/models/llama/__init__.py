"""Llama: a decoder with rotary positions, gated networks and RMS norms."""
