#!/usr/bin/env python3
"""One board under a user-mode kernel: starts it, and stands between it and this machine until it ends.

  gate.py FOLDER KERNEL DISK MEGABYTES

FOLDER gets these sockets:
  lab.0 to lab.3         the ports of the lab's agent on the board: a connection waits until the board is up
  bluetooth.0 and .1     the other ends of the board's serial lines, for one at a time
  control                a line asks, a line answers:
                           power-cut      the board's power is taken away and given back: `done`
                           forward PORT   a port of this machine's loopback that leads to PORT in the house
The board's cable ends in a network namespace of its own, where 10.0.2.2 is this machine: what the board connects to there
is connected to the same port of the loopback here. Everything ends with this process.
"""
import asyncio, contextlib, ctypes, fcntl, os, signal, socket, struct, subprocess, sys

HERE, BOARD, AGENT = "10.0.2.2", "10.0.2.15", 9000
PORTS, LINES, CHUNK = 4, 2, 64 * 1024
CLONE_NEWNET, CLONE_NEWPID, PR_SET_PDEATHSIG, SO_ORIGINAL_DST = 0x40000000, 0x20000000, 1, 80
ADDR_NO_RANDOMIZE = 0x0040000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
LIBC = ctypes.CDLL(None, use_errno=True)


def must(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Spaces:
    """This machine's network and the board's. Everything that is opened belongs to the board's, unless it is asked for."""

    def __init__(self):
        self.outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        must(LIBC.unshare(CLONE_NEWNET))
        self.inside = os.open("/proc/self/ns/net", os.O_RDONLY)
        # Without the headers by which a packet goes on without its checksum, or joined with others: the board sends it on by radio.
        self.cable = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.cable, TUNSETIFF, struct.pack("16sH22x", b"way", IFF_TAP | IFF_NO_PI))
        for line in ("ip link set lo up", f"ip address add {HERE}/24 dev way", "ip link set way up"):
            subprocess.run(line.split(), check=True)
        rules = ('table ip way { chain in { type nat hook prerouting priority dstnat ; '
                 f'iifname "way" ip daddr {HERE} tcp dport 1-65535 redirect to :1 ; }} ; }}')
        subprocess.run(["nft", rules], check=True)

    def socket_outside(self):
        must(LIBC.setns(self.outside, CLONE_NEWNET))
        try:
            return socket.socket()
        finally:
            must(LIBC.setns(self.inside, CLONE_NEWNET))


async def connected(line, address):
    """Streams of a socket that gets connected; it is closed when it does not."""
    line.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(line, address)
    except OSError:
        line.close()
        raise
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return await asyncio.open_connection(sock=line)


async def pour(reader, writer):
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def join(one, other):
    """Until both directions have ended, or one of them broke."""
    try:
        await asyncio.gather(pour(one[0], other[1]), pour(other[0], one[1]))
    except OSError:
        pass
    finally:
        for _, writer in (one, other):
            writer.transport.abort()


class Board:
    def __init__(self, spaces, folder, kernel, disk, megabytes):
        self.folder, self.kernel, self.ending = folder, None, False
        self.numbers = os.open("/proc/self/ns/pid", os.O_RDONLY)
        pairs = [socket.socketpair() for _ in range(LINES)]
        self.lines, self.theirs = [own for own, _ in pairs], [other for _, other in pairs]
        for line in self.lines:
            line.setblocking(False)
        self.passed = [spaces.cable, *[line.fileno() for line in self.theirs]]
        self.words = [kernel, f"mem={megabytes}M", f"ubd0={folder}/disk,{disk}", "root=/dev/ubda", "rw", "quiet", "panic=-1",
                      "audit=0", "net.ifnames=0", "con=null", "con0=null,fd:1", "ssl=null",
                      *[f"ssl{number}=fd:{line.fileno()}" for number, line in enumerate(self.theirs)],
                      f"vec0:transport=fd,fd={spaces.cable},vec=0,mac=52:54:00:00:00:01", "mac80211_hwsim.radios=5",
                      # As in the kernel of the other kind of board: with bearers of GATT beside the first, BlueZ 5.66 on both ends
                      # loses connections.
                      "bluetooth.enable_ecred=0",
                      f"uml_dir={folder}/", "umid=kernel"]

    def start(self):
        # It is the first process of a namespace of its own: all that it starts ends with it, before it is waited for.
        must(LIBC.setns(self.numbers, CLONE_NEWPID))
        must(LIBC.unshare(CLONE_NEWPID))
        try:
            with open(f"{self.folder}/console.log", "ab") as log:
                self.kernel = subprocess.Popen(
                    self.words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                    pass_fds=self.passed, env={**os.environ, "TMPDIR": "/dev/shm"},
                    preexec_fn=self.prepare)
        finally:
            must(LIBC.setns(self.numbers, CLONE_NEWPID))

    @staticmethod
    def prepare():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # Its memory is where the system happens to put it, and the gap in front of that costs it some: always the same one.
        LIBC.personality(ADDR_NO_RANDOMIZE)

    async def watch(self):
        """Returns when the board has ended by itself."""
        while True:
            kernel, ended = self.kernel, asyncio.Event()
            handle = os.pidfd_open(kernel.pid)
            asyncio.get_running_loop().add_reader(handle, ended.set)
            await ended.wait()
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)
            kernel.wait()
            if kernel is self.kernel and not self.ending:
                return
            self.ending = False
            self.start()

    def cut_power(self):
        self.ending = True
        self.kernel.kill()


class Gate:
    def __init__(self, spaces, board):
        self.spaces, self.board, self.taken = spaces, board, [None] * LINES

    async def to_agent(self, reader, writer):
        while True:
            try:
                other = await asyncio.wait_for(connected(socket.socket(), (BOARD, AGENT)), 2)
                break
            except (OSError, asyncio.TimeoutError):
                await asyncio.sleep(0.1)
        await join((reader, writer), other)

    async def to_outside(self, reader, writer):
        wanted = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_IP, SO_ORIGINAL_DST, 16)
        port, = struct.unpack_from("!H", wanted, 2)
        try:
            other = await connected(self.spaces.socket_outside(), ("127.0.0.1", port))
        except OSError:
            writer.transport.abort()
            return
        await join((reader, writer), other)

    async def control(self, reader, writer):
        match (await reader.readline()).decode().split():
            case ["power-cut"]:
                self.board.cut_power()
                answer = "done"
            case ["forward", port]:
                answer = await self.forward(int(port))
            case words:
                answer = f"not understood: {words}"
        writer.write(f"{answer}\n".encode())
        writer.close()

    async def forward(self, port):
        async def to_house(reader, writer):
            try:
                other = await connected(socket.socket(), (BOARD, port))
            except OSError:
                writer.transport.abort()
                return
            await join((reader, writer), other)
        line = self.spaces.socket_outside()
        line.bind(("127.0.0.1", 0))
        await asyncio.start_server(to_house, sock=line)
        return line.getsockname()[1]

    async def serial(self, number, reader, writer):
        """What the board says while nobody is here is lost, as it is on a line without a plug."""
        if self.taken[number]:
            writer.transport.abort()
            return
        self.taken[number] = writer
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(CHUNK):
                await loop.sock_sendall(self.board.lines[number], data)
        except OSError:
            pass
        finally:
            self.taken[number] = None
            writer.transport.abort()

    async def from_serial(self, number):
        line, loop = self.board.lines[number], asyncio.get_running_loop()
        while data := await loop.sock_recv(line, CHUNK):
            if writer := self.taken[number]:
                writer.write(data)

    async def open(self, folder):
        for number in range(PORTS):
            await asyncio.start_unix_server(self.to_agent, f"{folder}/lab.{number}")
        for number in range(LINES):
            serve = lambda reader, writer, number=number: self.serial(number, reader, writer)
            await asyncio.start_unix_server(serve, f"{folder}/bluetooth.{number}")
        await asyncio.start_server(self.to_outside, "0.0.0.0", 1)
        # The last one: who finds it finds all.
        await asyncio.start_unix_server(self.control, f"{folder}/control")
        return [asyncio.create_task(self.from_serial(number)) for number in range(LINES)]


async def main():
    folder, kernel, disk, megabytes = sys.argv[1:]
    spaces = Spaces()
    board = Board(spaces, folder, kernel, disk, megabytes)
    gate = Gate(spaces, board)
    tasks = await gate.open(folder)
    board.start()
    watched = asyncio.create_task(board.watch())
    await asyncio.wait([watched, *tasks], return_when=asyncio.FIRST_COMPLETED)
    with contextlib.suppress(ProcessLookupError):
        board.kernel.kill()


asyncio.run(main())
