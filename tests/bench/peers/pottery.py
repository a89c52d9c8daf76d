"""The library pottery on redis-py, as a client process of the bench (src/worker.rs describes the protocol).

    python3 pottery.py cycle|contend TASKS redis://HOST:PORT...

cycle: every task acquires and releases its own lock. contend: all tasks share one lock and hold it for 1 ms.
"""

import asyncio
import logging
import os
import platform
import sys
import time

# This script has the name of the library: without this line, `import pottery` would import the script.
sys.path[0] = os.environ["REDLOCK_PYTHON_PEERS"]

from importlib.metadata import version

import pottery
import redis.asyncio

MODE, TASKS, *URLS = sys.argv[1:]
TTL_S = 30.0


def lock(key, clients):
    return pottery.AIORedlock(key=key, masters=clients, auto_release_time=TTL_S)


async def free(held):
    try:
        await held.release()
    except pottery.ReleaseUnlockedLock:
        pass


async def task(number, key, clients, end, told):
    mine = lock(key, clients)
    while (start := time.monotonic_ns()) < end:
        had_it = await mine.acquire(blocking=MODE == "contend")
        if not had_it:
            told["refused"] += 1
        elif MODE == "cycle":
            await free(mine)
            told["turns"].append((number, start, time.monotonic_ns()))
        else:
            start = time.monotonic_ns()
            await asyncio.sleep(0.001)
            told["turns"].append((number, start, time.monotonic_ns()))
            await free(mine)


async def serve(key, ms, clients):
    told = {"turns": [], "refused": 0}
    cpu = time.process_time()
    end = time.monotonic_ns() + ms * 1_000_000
    keys = (f"{key}:{number}" if MODE == "cycle" else key for number in range(int(TASKS)))
    await asyncio.gather(*(task(number, key, clients, end, told) for number, key in enumerate(keys)))
    cpu_us = (time.process_time() - cpu) * 1e6
    for number, start, stop in told["turns"]:
        print(f"turn {number} {start} {stop} true")
    if told["refused"]:
        print(f"refused {told['refused']}")
    print(f"cpu {cpu_us}", flush=True)


async def main():
    logging.disable()
    clients = {redis.asyncio.Redis.from_url(url) for url in URLS}
    for client in clients:
        await client.ping()
    is_ = f"pottery {version('pottery')}, redis-py {version('redis')}, Python {platform.python_version()}"
    print(f"ready {is_}", flush=True)
    loop = asyncio.get_running_loop()
    while order := await loop.run_in_executor(None, sys.stdin.readline):
        key, ms = order.split()
        await serve(key, int(ms), clients)


asyncio.run(main())
