"""`transformer` as a command in a shell, forked from a process that has imported the program.

A page runs dozens of commands, and each would spend seconds on importing PyTorch. `serve` listens at a socket. The
command that `install` writes sends its arguments, folder and standard streams there, and ends with the exit status of
the child.
"""

import array
import json
import os
import socket
import sys
from pathlib import Path

CLIENT = """#!{python} -IS
import array, json, os, socket, sys
words = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
with socket.socket(socket.AF_UNIX) as server:
    server.connect("{path}")
    message = json.dumps(words).encode()
    streams = array.array("i", [0, 1, 2])
    server.sendmsg([len(message).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    server.sendall(message)
    sys.exit(int(server.recv(8)))
"""
SHORT = ["--set", "training.max_steps=20"]
"""Appended to `transformer train`: the command is run as shown, except that training is shortened."""


def install(folder: Path, path: Path) -> None:
    """Writes the command `transformer` to a folder of the search path."""
    command = folder / "transformer"
    command.write_text(CLIENT.format(python=sys.executable, path=path), encoding="utf-8")
    command.chmod(0o755)


def serve(path: Path) -> None:
    """Answers calls until the process is killed."""
    import transformer.cli.app
    import transformer.run.train

    for name in transformer.cli.app.COMMANDS:
        transformer.cli.app.make_app([name])
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(connection)
        connection.close()
        while _reap():
            pass


def _reap() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _answer(connection: socket.socket) -> None:
    """Runs a call in a child, waits for it and sends its exit status."""
    size, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * 4))
    streams = array.array("i")
    for _, _, data in ancillary:
        streams.frombytes(data)
    length = int.from_bytes(size, "big")
    message = b""
    while len(message) < length:
        message += connection.recv(length - len(message))
    call = json.loads(message)
    child = os.fork()
    if child == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["environment"])
        os._exit(_run(call["arguments"]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(str(status if status >= 0 else 128 - status).encode())
    os._exit(0)


def _run(arguments: list[str]) -> int:
    from transformer.cli import main

    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww"))
    sys.argv = ["transformer", *arguments, *(SHORT if arguments[:1] == ["train"] else [])]
    try:
        main()
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
