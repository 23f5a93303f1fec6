"""The program of `harness.embedded`: serve an embedded cluster until a signal, and say where."""

from __future__ import annotations

import asyncio
import signal

from prov_host.embedded import Cluster, serve


async def main() -> None:
    """Serve on a free port; the address is the only line of output."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serve(Cluster()) as server:
        print(f"serving {server.url}", flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
