#!/usr/bin/python3
"""The lab's way into a board: runs what comes through the virtual serial ports named lab.0, lab.1 and so on; under a
user-mode kernel, which has none, through connections to the house (`lab-way` starts it there).

A message is a line of JSON followed by as many raw bytes as its "bytes" says. Each port serves one request at a time;
each answer carries the request's "id". When the other side goes away in the middle, what runs for it is ended.

  {"id", "op": "exec", "command", "limit"}  ->  {"id", "bytes"} (output, repeated), then {"id", "code"}
  {"id", "op": "put", "path", "mode", "bytes"}  ->  {"id", "code"} (or with "error")
  {"id", "op": "get", "path"}  ->  {"id", "bytes"} (repeated), then {"id", "code"}
"""
import json, os, select, signal, socket, subprocess, sys, threading, time

PORTS = 4
HOUSE = ("10.0.2.15", 9000)
CHUNK = 64 * 1024
ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8", "SYSTEMD_PAGER": "cat",
               "PATH": "/usr/local/lib/lab:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


class Gone(Exception):
    """The other side has closed the port."""


class Port:
    def __init__(self, file):
        self.file = file
        self.buffer = b""

    def fill(self):
        data = os.read(self.file, CHUNK)
        if not data:
            raise Gone
        self.buffer += data

    def message(self):
        while b"\n" not in self.buffer:
            self.fill()
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def raw(self, count):
        while count > 0:
            if not self.buffer:
                self.fill()
            data, self.buffer = self.buffer[:count], self.buffer[count:]
            count -= len(data)
            yield data

    def say(self, message, raw=b""):
        data = json.dumps(message).encode() + b"\n" + raw
        while data:
            data = data[os.write(self.file, data):]

    def away(self):
        poll = select.poll()
        poll.register(self.file, select.POLLRDHUP)
        return any(event & (select.POLLHUP | select.POLLRDHUP) for _, event in poll.poll(0))


def execute(port, request):
    number, end = request["id"], time.monotonic() + request.get("limit", 600)
    child = subprocess.Popen([*BESIDE, "/bin/bash", "-c", request["command"]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, cwd="/root", env=ENVIRONMENT, start_new_session=True)
    output, ended = child.stdout.fileno(), False
    while True:
        ready, _, _ = select.select([output], [], [], 0.02 if ended else 0.2)
        data = os.read(output, CHUNK) if ready else b""
        if data:
            port.say({"id": number, "bytes": len(data)}, data)
        elif ended or ready:
            # What it has left in the background may hold the pipe for ever: its own end is what counts.
            break
        if child.poll() is not None:
            ended = True
        elif port.away() or time.monotonic() > end:
            os.killpg(child.pid, signal.SIGKILL)
    child.stdout.close()
    return {"id": number, "code": child.wait()}


def put(port, request):
    # A program that runs is replaced, not overwritten.
    part = request["path"] + ".part"
    source = port.raw(request["bytes"])
    try:
        os.makedirs(os.path.dirname(part), exist_ok=True)
        with open(part, "wb") as file:
            for data in source:
                file.write(data)
    finally:
        for _ in source:
            pass
    os.chmod(part, request.get("mode", 0o644))
    os.replace(part, request["path"])
    return {"id": request["id"], "code": 0}


def get(port, request):
    with open(request["path"], "rb") as file:
        while data := file.read(CHUNK):
            port.say({"id": request["id"], "bytes": len(data)}, data)
    return {"id": request["id"], "code": 0}


def serve(port):
    """Until the other side closes the port."""
    while True:
        try:
            request = port.message()
            work = {"exec": execute, "put": put, "get": get}[request["op"]]
            try:
                answer = work(port, request)
            except (Gone, BrokenPipeError, ConnectionResetError):
                return
            except OSError as error:
                answer = {"id": request["id"], "code": 255, "error": str(error)}
            port.say(answer)
        except (Gone, BrokenPipeError, ConnectionResetError):
            return
        except (ValueError, KeyError) as error:
            print(repr(error), file=sys.stderr, flush=True)
            port.buffer = b""


def serve_line(path):
    port = Port(os.open(path, os.O_RDWR))
    while True:
        serve(port)
        port.buffer = b""
        time.sleep(0.1)


def serve_connection(line):
    with line:
        serve(Port(line.fileno()))


if sys.argv[1:] == ["house"]:
    # What it runs is in the board's own network, not in the house's.
    BESIDE = ["nsenter", "--net=/proc/1/ns/net", "--"]
    with socket.create_server(HOUSE) as door:
        while True:
            line, _ = door.accept()
            threading.Thread(target=serve_connection, args=(line,), daemon=True).start()
BESIDE = []
for number in range(PORTS):
    path = f"/dev/virtio-ports/lab.{number}"
    while not os.path.exists(path):
        time.sleep(0.05)
    threading.Thread(target=serve_line, args=(path,), daemon=True).start()
signal.pause()
