"""Starts `cmem`: lets a running `cmem serve` answer for the workspace, else runs the command in this process.

It uses the standard library alone and is in no package: asking a server then costs little more than starting
Python. Whatever is out of the ordinary (no server, another version, no answer in time, a usage error) ends in
the command being run here, as if there were no servers; nothing is printed before the whole answer is there.
"""

import _socket  # what `socket` adds to it takes a third of the time from the start to the answer
import atexit
import os
import sys

ANSWERED = frozenset({"explain", "get", "pack", "recall", "search", "status"})
"""The commands that a server answers: they only read."""
FOLDER = "serve"
"""In the state folder, with a socket for each workspace that is served."""
CONNECT_S = 1.0
SILENCE_S = 10.0
"""A server says several times in this that it is still at work."""
MAX_REQUEST_BYTES = 1 << 20
MAX_ADDRESS_BYTES = 100
LARGE_PRIME = 2**61 - 1
HEAD_BYTES = 5
"""Of a frame: its kind in one byte, its length in four."""
BEAT, OUT, ERR, END, DECLINED = b".", b"o", b"e", b"x", b"-"
"""Kinds of frames: still at work; for stdout; for stderr; the exit code; the client has to run it itself."""


def main() -> None:
    """Run the command line."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ANSWERED and os.name == "posix" and sys.stdout and sys.stderr:
        code = _answered(arguments)
        if code is not None:
            os._exit(code)  # all is printed; to take down the modules takes a sixth of a bare Python
    codes: list[object] = []
    atexit.register(_end, codes)  # first, so that it comes after all that the command registers
    from composable_memory.cli import main as run_here

    try:
        run_here()
    except SystemExit as ended:
        codes.append(ended.code)
        raise


def _end(codes: list[object]) -> None:
    """End this process with its exit code, without taking down its modules: a fiftieth of a search."""
    if codes and isinstance(codes[0], int):
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            return  # of which Python tells
        os._exit(codes[0])


def _answered(arguments: list[str]) -> int | None:
    """Print what a server answers and return its exit code; None if none answers."""
    try:
        workspace = option(arguments, "--workspace", "-w") or "."
        state_dir = option(arguments, "--state-dir") or default_state_dir()
        frames = exchange(address_of(state_dir, workspace), request_of(arguments))
    except (OSError, ValueError):
        return None
    except KeyboardInterrupt:
        return 130
    return _print(frames) if frames[-1][0] == END else None


def option(arguments: list[str], *names: str) -> str:
    """Return the value of an option, guessed without knowing the others; a wrong guess finds no server."""
    found = ""
    for number, one in enumerate(arguments):
        name, mark, value = one.partition("=")
        if one == "--":
            break
        if one in names:
            found = arguments[number + 1] if number + 1 < len(arguments) else ""
        elif mark and name in names and name.startswith("--"):
            found = value
        elif one[:2] in names and not one.startswith("--"):
            found = one[2:]
    return found


def default_state_dir() -> str:
    """Return the state folder as `composable_memory.config.layers` has it."""
    if named := os.environ.get("COMPOSABLE_MEMORY_STATE_DIR"):
        return named
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = "~/Library/Application Support" if sys.platform == "darwin" else "~/.local/state"
    return os.path.join(base, "composable-memory")


def address_of(state_dir: str, workspace: str) -> str:
    """Return the path of the socket for a workspace, which is known by its folder's device and inode.

    Raises:
        OSError: there is no such folder, or others could have put a socket there.
    """
    folder = os.path.join(os.path.expanduser(state_dir), FOLDER)
    found, here = os.lstat(folder), os.stat(os.path.expanduser(workspace))
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is open to others")
    return os.path.join(folder, f"{here.st_dev:x}-{here.st_ino:x}.sock")


def reachable(address: str) -> str:
    """Return a name for a socket that the system takes; one for a long path keeps the folder open."""
    if len(os.fsencode(address)) <= MAX_ADDRESS_BYTES:
        return address
    folder, name = os.path.split(address)
    return f"/proc/self/fd/{os.open(folder, os.O_RDONLY)}/{name}"


def installation() -> str:
    """Return what tells this installation of the program from others: its environment, and this very file.

    The file counts by what is in it: the same one has several paths where folders are mounted or linked.
    """
    with open(__file__, "rb") as file:
        # As good as a checksum here, and imports nothing.
        return f"{os.path.realpath(sys.prefix)}:{int.from_bytes(file.read(), 'big') % LARGE_PRIME:x}"


def request_of(arguments: list[str]) -> bytes:
    """Return the message that has a command run: the caller, its terminal, the arguments, the environment.

    Raises:
        ValueError: it is too long, or an argument is no text.
    """
    "".join(arguments).encode()
    width = str(os.get_terminal_size(1).columns) if sys.stdout.isatty() else ""
    head = [installation(), os.getcwd(), width, str(len(arguments))]
    for stream in (sys.stdout, sys.stderr):
        head += [stream.encoding, "tty" if stream.isatty() else ""]
    environment = (b"%b=%b" % pair for pair in os.environb.items())
    body = b"\0".join([*map(os.fsencode, [*head, *arguments]), *environment])
    if len(body) > MAX_REQUEST_BYTES:
        raise ValueError("more than a server reads")
    return len(body).to_bytes(4, "big") + body


def frame(kind: bytes, data: bytes = b"") -> bytes:
    """Return a part of an answer as it is sent."""
    return kind + len(data).to_bytes(4, "big") + data


def exchange(address: str, request: bytes) -> list[tuple[bytes, bytes]]:
    """Send a request to the server at an address; return the frames of its answer, the last one last.

    Raises:
        OSError: nobody listens there, or the answer does not come, or not whole.
    """
    frames: list[tuple[bytes, bytes]] = []
    connection = _socket.socket(_socket.AF_UNIX)
    try:
        connection.settimeout(CONNECT_S)
        connection.connect(reachable(address))
        connection.sendall(request)
        while not frames or frames[-1][0] not in (END, DECLINED):
            head = _read(connection, HEAD_BYTES)
            data = _read(connection, int.from_bytes(head[1:], "big"))
            connection.settimeout(SILENCE_S)
            if head[:1] != BEAT:
                frames.append((head[:1], data))
    finally:
        connection.close()
    return frames


def _read(connection: _socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            raise ConnectionResetError("the server went away")
        data += piece
    return bytes(data)


def _print(frames: list[tuple[bytes, bytes]]) -> int:
    """Print what a command printed, in its order; return its exit code."""
    try:
        for kind, data in frames[:-1]:
            stream = sys.stdout if kind == OUT else sys.stderr
            stream.buffer.write(data)
            stream.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"Error: {error}\n")  # by lines, so nothing is left in its buffer
        return 1
    return int(frames[-1][1])


if __name__ == "__main__":
    main()
