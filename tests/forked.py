"""Run `python -m src.train` many times for the price of one import: a server that forks a process a command.

As a program it reads one JSON request a line and answers each with one line; tests use `Commands`.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 300  # seconds; far beyond what any command here needs, also on a machine that does much else


@dataclass
class Command:
    """A command that was started; out and err hold its output so far."""

    pid: int
    folder: Path
    server: "Commands"
    returncode: int | None = None

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text(encoding="utf-8", errors="replace")

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def running(self) -> bool:
        if self.returncode is None:
            self.returncode = self.server.ask({"poll": self.pid})
        return self.returncode is None

    def until(self, reached: Callable[[], object]) -> None:
        """Wait until a condition is met; an error if the command ends before, or takes too long."""
        end = time.monotonic() + DEADLINE
        while not reached():
            if time.monotonic() > end:
                self.send(signal.SIGKILL)
            if not self.running() and not reached():
                raise AssertionError(f"ended with {self.returncode}: {self.out}{self.err}")
            time.sleep(0.005)

    def wait(self) -> "Command":
        self.until(lambda: not self.running())
        return self


class Commands:
    """Starts commands; each has a folder of its own for its output."""

    def __init__(self, folder: Path):
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, *args, cwd=ROOT, env=None, file_limit=None) -> Command:
        """Start `python -m src.train ARGS`; file_limit is what `ulimit -f` sets, in bytes."""
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        for stream in ("out", "err"):
            (folder / stream).touch()
        request = {
            "args": args,
            "cwd": str(cwd),
            "env": env or {},
            "folder": str(folder),
            "limit": file_limit,
        }
        return Command(self.ask(request), folder, self)

    def run(self, *args, **options) -> Command:
        return self.start(*args, **options).wait()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def serve() -> None:
    sys.path.insert(0, str(ROOT))
    from msbp.config import compose
    from src.train import train

    with tempfile.TemporaryDirectory() as folder:  # what the first run imports and compiles, all others have
        train(compose(["experiment=smoke", "trainer.epochs=1", f"paths.outputs={folder}"]), Path(folder), [])
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                become(**request)
        print(json.dumps(answer), flush=True)


def become(args, cwd, env, folder, limit) -> None:
    """Run the command in this process and exit with its code."""
    from src.train import main, start

    for number, name in ((0, os.devnull), (1, f"{folder}/out"), (2, f"{folder}/err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o644), number)
    os.chdir(cwd)
    os.environ.pop("HYDRA_FULL_ERROR", None)
    os.environ.update(env)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell would have it ignored
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.argv = ["src.train", *args]
    code = 1
    try:
        start(main, sweeps=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
