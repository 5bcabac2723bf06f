"""An identity provider for tests/sign_in.rs, on a free port of loopback, which it prints.

Usage: provider.py SECONDS      how long its tokens are good

`rotate` on standard input makes it forget everything, its keys too; it says `rotated` then. It ends with its input.
"""

import os
import socket
import sys
import threading
from datetime import timedelta

import uvicorn
from oidc_provider_mock import app

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"


def fresh():
    return app(access_token_max_age=timedelta(seconds=int(sys.argv[1])))


current = fresh()


def answer(environ, start_response):
    return current(environ, start_response)


def listen():
    global current
    for line in sys.stdin:
        current = fresh()
        print("rotated", flush=True)
    os._exit(0)


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
threading.Thread(target=listen, daemon=True).start()
uvicorn.Server(uvicorn.Config(answer, interface="wsgi", log_config=None)).run(sockets=[listener])
