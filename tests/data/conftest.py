"""A private world for the data tests: an empty cache, no system copies, no VESTIGE_DATA, a server on this machine."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from vestige.data import loading


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; under /torn/ it promises the whole file and sends half of it."""

    def log_message(self, *args):
        """Keep quiet."""

    def do_GET(self):
        self.server.asked.append(self.path)
        if not self.path.startswith("/torn/"):
            return super().do_GET()
        with open(self.translate_path(self.path.removeprefix("/torn")), "rb") as file:
            data = file.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])
        return None


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No data set is anywhere; returns the (empty) cache, system root and data folder."""
    world = SimpleNamespace(cache=tmp_path / "cache", system=tmp_path / "system", data=tmp_path / "data")
    world.data.mkdir()
    monkeypatch.setenv("VESTIGE_CACHE", str(world.cache))
    monkeypatch.delenv("VESTIGE_DATA", raising=False)
    monkeypatch.setattr(loading, "SYSTEM_ROOT", world.system)
    return world


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder, its address, and the paths that were asked for."""
    folder = tmp_path / "served"
    folder.mkdir()
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield SimpleNamespace(folder=folder, url=f"http://127.0.0.1:{server.server_port}", asked=server.asked)
        server.shutdown()
        thread.join()
