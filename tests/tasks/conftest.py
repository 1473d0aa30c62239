"""A local web server for downloads: no test uses a network."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Web:
    """Serves a folder at an address, and lists the paths that were requested."""

    def __init__(self, folder: Path):
        self.folder, self.requests = folder, []
        handler = type("Handler", (SimpleHTTPRequestHandler,), {"log_message": self._log})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def _log(self, *words: object) -> None:
        self.requests.append(" ".join(map(str, words)))

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """Serves tmp_path/web."""
    (tmp_path / "web").mkdir()
    web = Web(tmp_path / "web")
    yield web
    web.close()
