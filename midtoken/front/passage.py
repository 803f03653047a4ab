"""Passes what is no completion on to the engine that the user has named, unchanged: chats and embeddings.

This text does not pass the gate. The client meant it for the engine, which would get it without midtoken, too.
"""

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from inference.errors import InferenceServerUnreachableError

_HEADERS = ("Content-Type", "Content-Encoding")  # of an answer; the others are about the connection
_CONNECT_S = 5.0


class Passage:
    """The way to one engine, which is never told the client's key, address or program."""

    def __init__(self, url: str, key: str) -> None:
        """`key`: the engine's; empty if it needs none."""
        self._url = url
        self._session = ClientSession(
            f"{url}/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
            timeout=ClientTimeout(total=None, sock_connect=_CONNECT_S),
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._session.close()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Passes the body on, and the answer as it comes. Raises InferenceServerUnreachableError."""
        body, response = await request.read(), None
        sent = self._session.post(
            request.path.lstrip("/"), data=body, headers={"Content-Type": "application/json"}, allow_redirects=False
        )
        try:
            async with sent as answer:
                headers = {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
                response = web.StreamResponse(status=answer.status, headers=headers)
                await response.prepare(request)
                async for data in answer.content.iter_any():
                    await response.write(data)
        except (ClientError, TimeoutError):
            if response is None or request.transport is None:
                raise InferenceServerUnreachableError(f"the server at {self._url} does not answer") from None
            request.transport.abort()  # or the client would take the half for all
        return response
