"""A proxy between a client and the server, which cuts all connections when it is told to."""

import asyncio
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on as they come, both ways."""

    def __init__(self, url):
        address = urlsplit(url)
        self.server = (address.hostname, address.port)
        self.writers = set()

    async def __aenter__(self):
        self.listener = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = self.listener.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_):
        self.listener.close()
        self.cut()

    async def serve(self, reader, writer):
        try:
            to_reader, to_writer = await asyncio.open_connection(*self.server)
            self.writers |= {writer, to_writer}
            await asyncio.gather(self.copy(reader, to_writer), self.copy(to_reader, writer))
        except asyncio.CancelledError:
            pass

    async def copy(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def cut(self):
        """Aborts all connections; how many streams of bytes they were."""
        writers, self.writers = self.writers, set()
        for writer in writers:
            writer.transport.abort()
        return len(writers)
