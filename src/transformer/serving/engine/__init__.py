"""Processes that load models and run the work of the server, and the part of the server that directs them.

The server starts one *spawner*, which imports torch and forks a *host* for each model to load. A host loads and packs
its model, then forks *workers*, which share its memory. The server is connected to each process by a socket of its own;
a process whose socket is closed ends.
"""
