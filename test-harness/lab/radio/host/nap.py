#!/usr/bin/env python3
"""A phone that shares its connection by Bluetooth (PAN, access point): nap.py FOLDER PASSWORD PORT

Its app unlocks pairing with the label's PASSWORD, or does not where that is empty; then somebody finds the board among the devices near
and pairs. What comes from the board goes to a network of this machine (a TAP), with DHCP; behind it is the port PORT of
this machine's loopback under the address 10.0.2.2. Prints what happens. Obeys its input: `go` is out of range, `come` is back with its
keys and waits to be called, `bare` the same with tethering switched off, `call` calls the board. Ends with its input."""
import asyncio, fcntl, os, socket, struct, subprocess, sys
from bumble import hci, l2cap
from bumble.core import BT_BNEP_PROTOCOL_ID, BT_L2CAP_PROTOCOL_ID, BT_NAP_SERVICE, PhysicalTransport
from bumble.device import Device, DeviceConfiguration
from bumble.hci import Address
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.sdp import (SDP_BROWSE_GROUP_LIST_ATTRIBUTE_ID, SDP_PROTOCOL_DESCRIPTOR_LIST_ATTRIBUTE_ID, SDP_PUBLIC_BROWSE_ROOT,
                        SDP_SERVICE_CLASS_ID_LIST_ATTRIBUTE_ID, SDP_SERVICE_RECORD_HANDLE_ATTRIBUTE_ID, DataElement,
                        ServiceAttribute)
from bumble.transport import open_transport
from app import SERVICE, App
from phone import Person, Phone

BNEP = 0x000F
NET, PREFIX = "192.168.44", 24
OUTSIDE = "10.0.2.2"
TAP = "tethered"


def say(*words):
    print(*words, flush=True)


class Asked(Person):
    """Who holds the phone: sees the number and agrees."""

    async def compare_numbers(self, number, digits):
        say("compares a number")
        return True


def record():
    uuids = lambda *all: DataElement.sequence([DataElement.uuid(one) for one in all])
    ethernet = DataElement.sequence([DataElement.unsigned_integer_16(0x0800), DataElement.unsigned_integer_16(0x0806)])
    protocols = DataElement.sequence([
        DataElement.sequence([DataElement.uuid(BT_L2CAP_PROTOCOL_ID), DataElement.unsigned_integer_16(BNEP)]),
        DataElement.sequence([DataElement.uuid(BT_BNEP_PROTOCOL_ID), DataElement.unsigned_integer_16(0x0100), ethernet])])
    return [ServiceAttribute(SDP_SERVICE_RECORD_HANDLE_ATTRIBUTE_ID, DataElement.unsigned_integer_32(0x10001)),
            ServiceAttribute(SDP_SERVICE_CLASS_ID_LIST_ATTRIBUTE_ID, uuids(BT_NAP_SERVICE)),
            ServiceAttribute(SDP_BROWSE_GROUP_LIST_ATTRIBUTE_ID, uuids(SDP_PUBLIC_BROWSE_ROOT)),
            ServiceAttribute(SDP_PROTOCOL_DESCRIPTOR_LIST_ATTRIBUTE_ID, protocols)]


def tap():
    line = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(line, 0x400454CA, struct.pack("16sH", TAP.encode(), 0x1002))  # TUNSETIFF: IFF_TAP | IFF_NO_PI
    for words in (["address", "add", f"{NET}.1/{PREFIX}", "dev", TAP], ["link", "set", TAP, "up"],
                  ["address", "replace", f"{OUTSIDE}/32", "dev", "lo"]):
        subprocess.run(["ip", *words], check=True)
    return line


async def outside(port):
    """What the board takes for the machine outside."""
    async def come(reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", port)

        async def pipe(one, other):
            try:
                while data := await one.read(65536):
                    other.write(data)
                    await other.drain()
            except OSError:
                pass
            other.close()

        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    await asyncio.start_server(come, OUTSIDE, port)


class Dhcp(asyncio.DatagramProtocol):
    """Gives the one address there is."""

    def datagram_received(self, data, sender):
        if len(data) < 240 or data[0] != 1:
            return
        options, at = {}, 240
        while at < len(data) and data[at] != 255:
            if data[at]:
                options[data[at]] = data[at + 2:at + 2 + data[at + 1]]
                at += 1 + data[at + 1]
            at += 1
        kind = {b"\1": 2, b"\3": 5}.get(options.get(53))
        if not kind:
            return
        own, given = (socket.inet_aton(f"{NET}.{number}") for number in (1, 2))
        answer = b"\2\1\6\0" + data[4:8] + data[8:12] + bytes(4) + given + own + bytes(4) + data[28:44] + bytes(192) + data[236:240]
        for code, value in ((53, bytes([kind])), (54, own), (51, (3600).to_bytes(4, "big")), (1, b"\xff\xff\xff\0"), (3, own), (6, own)):
            answer += bytes([code, len(value)]) + value
        self.transport.sendto(answer + b"\xff", ("255.255.255.255", 68))
        if kind == 5:
            say("gave the board an address")

    def connection_made(self, transport):
        self.transport = transport


async def dhcp():
    line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, TAP.encode())
    line.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    line.bind(("0.0.0.0", 67))
    line.setblocking(False)
    await asyncio.get_running_loop().create_datagram_endpoint(Dhcp, sock=line)


class Shared:
    """One board's connection: BNEP on one side, Ethernet on the other."""

    def __init__(self, channel, line, own, theirs):
        self.channel, self.line, self.own, self.theirs = channel, line, own, theirs
        channel.sink = self.hear
        self.open = False
        asyncio.get_running_loop().add_reader(line, self.answer)

    def answer(self):
        try:
            frame = os.read(self.line, 2000)
        except BlockingIOError:
            return
        if self.open and self.channel.state == self.channel.State.OPEN:
            self.channel.write(b"\0" + frame)

    def hear(self, packet):
        kind, rest = packet[0] & 0x7F, packet[1:]
        more = packet[0] & 0x80
        if kind == 1:
            return self.control(rest)
        own, theirs = self.own, self.theirs
        if kind == 0:
            head, rest = rest[:14], rest[14:]
        else:
            # The addresses that go without saying are left out.
            to, by = (rest[:6], rest[6:]) if kind == 4 else (own, rest)
            by, rest = (by[:6], by[6:]) if kind == 3 else (theirs, by)
            head, rest = to + by + rest[:2], rest[2:]
        while more:
            more, length = rest[0] & 0x80, rest[1]
            rest = rest[2 + length:]
        os.write(self.line, head + rest)

    def control(self, rest):
        if rest[0] == 1:
            size = rest[1]
            wanted = int.from_bytes(rest[2:2 + size][:4][-2:], "big") if size == 2 else int.from_bytes(rest[2:6], "big")
            well = wanted == 0x1116
            self.channel.write(b"\1\2" + (b"\0\0" if well else b"\0\1"))
            self.open = well
            say("shares its connection" if well else f"was asked for {wanted:x}")
        elif rest[0] in (3, 5):
            # Filters are taken, and not used.
            self.channel.write(bytes([1, rest[0] + 1, 0, 0]))


class Known:
    """A phone that keeps its address and its keys, wherever it is."""

    def __init__(self, folder, line):
        self.folder, self.line, self.transport, self.device = folder, line, None, None

    async def come(self, shares=True):
        self.transport = await open_transport(f"unix:{self.folder}/known")
        settings = DeviceConfiguration(name="phone", address=Address("F0:F1:F2:F3:F4:F6"), classic_enabled=True,
                                       le_enabled=False, keystore=f"JsonKeyStore:{self.folder}/phone.keys")
        self.device = device = Device.from_config_with_hci(settings, self.transport.source, self.transport.sink)
        device.pairing_config_factory = lambda connection: PairingConfig(
            sc=True, mitm=True, bonding=True, delegate=Asked(PairingDelegate.DISPLAY_OUTPUT_AND_YES_NO_INPUT))
        device.sdp_service_records = {0x10001: record()}
        if shares:
            device.create_l2cap_server(l2cap.ClassicChannelSpec(psm=BNEP, mtu=1691), self.share)
        await device.power_on()
        await device.set_discoverable(True)
        await device.set_connectable(True)

    def share(self, channel):
        bare = lambda address: bytes(address)[::-1]
        channel.on("open", lambda: say("is asked for its connection"))
        Shared(channel, self.line, bare(self.device.public_address), bare(channel.connection.peer_address))

    async def go(self):
        """Out of range of everybody, without a word."""
        asyncio.get_running_loop().remove_reader(self.line)
        await self.transport.close()

    async def find(self):
        """The first that can be found by classic Bluetooth."""
        found, device = asyncio.get_running_loop().create_future(), self.device
        device.on("inquiry_result", lambda address, *_: found.done() or found.set_result(address))
        try:
            async with asyncio.timeout(20):
                while not found.done():
                    # One that begins anew by itself may do so after it was stopped, and never ends.
                    over = asyncio.Event()
                    device.once("inquiry_complete", over.set)
                    await device.start_discovery(auto_restart=False)
                    await asyncio.wait([found, asyncio.ensure_future(over.wait())], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            sys.exit("no device is near")
        finally:
            await device.stop_discovery()
        return found.result()

    async def call(self, board):
        """Connects, and proves by its key who it is, or pairs where it has none."""
        connection = await asyncio.wait_for(self.device.connect(board, transport=PhysicalTransport.BR_EDR), 30)
        await asyncio.wait_for(connection.authenticate(), 40)
        await asyncio.wait_for(connection.encrypt(), 20)


async def main():
    folder, password, port = sys.argv[1:]
    if password:
        async with Phone(folder, person=Asked(PairingDelegate.DISPLAY_OUTPUT_AND_YES_NO_INPUT)) as phone:
            app = App(await phone.connect(SERVICE))
            say("unlocks:", await app.write("unlock_pairing", (await app.seal(password))("1")))
            await asyncio.wait_for(app.peer.connection.disconnect(), 10)
    line = tap()
    await dhcp()
    await outside(int(port))
    phone = Known(folder, line)
    await phone.come()
    board = await phone.find()
    say("finds", board)
    try:
        await phone.call(board)
    except Exception as error:
        sys.exit(f"not paired: {error!r}")
    say("paired")
    words = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    while word := (await words.readline()).decode().strip():
        if word == "go":
            await phone.go()
        elif word in ("come", "bare"):
            await phone.come(shares=word == "come")
        elif word == "call":
            await phone.call(board)
        say(f"{word}: done")


asyncio.run(main())
