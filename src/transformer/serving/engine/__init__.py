"""The engine of the server: processes that load and run models, and the part of the server that directs them.

The server starts one *spawner*, which imports torch and forks a process for each model to load. That process loads and
packs the model, and runs a pool of *workers*, which share its memory; see `transformer.runtime.pool`. It is connected
to the server by a socket, and ends when the socket is closed.
"""
