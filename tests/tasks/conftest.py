"""A local web server for downloads, as no test uses a network; a treebank that several tests read."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

RANGES_AND_EMPTY_NODES = """\
# sent_id = c07-1
# text = Gimme two
1-2	Gimme	_	_	_	_	_	_	_	_
1	Gim	_	VERB	VB	_	0	root	_	_
2	me	_	PRON	PRP	_	1	iobj	_	_
3	two	_	NUM	CD	_	1	obj	_	_

# sent_id = c07-2
# text = Ann paints walls and Bob doors
1	Ann	_	PROPN	NNP	_	2	nsubj	_	_
2	paints	_	VERB	VBZ	_	0	root	_	_
3	walls	_	NOUN	NNS	_	2	obj	_	_
4	and	_	CCONJ	CC	_	5	cc	_	_
5	Bob	_	PROPN	NNP	_	2	conj	_	_
5.1	paints	paint	VERB	VBZ	_	_	_	2:conj	CopyOf=2
6	doors	_	NOUN	NNS	_	5	orphan	_	_

# sent_id = c07-3
# text = Gone
0.1	is	be	AUX	VBZ	_	_	_	1:aux	_
1	Gone	_	VERB	VBN	_	0	root	_	_

"""


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


@pytest.fixture(scope="session")
def ranges_and_empty_nodes() -> str:
    """Three sentences in CoNLL-U with comments, a multiword range and empty nodes."""
    return RANGES_AND_EMPTY_NODES
