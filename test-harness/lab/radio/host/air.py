#!/usr/bin/env python3
"""The air of one board: Bluetooth controllers that hear each other.

  air.py FOLDER [--extended] [--classic]
  air.py FOLDER --of OTHER

Two of them are at the other end of the board's serial lines, FOLDER/bluetooth.0 and .1. Each connection to FOLDER/phone
is a phone's own controller (H4), which is gone when the connection is; to FOLDER/known always the same one, which comes and goes.
Prints a line when all is open. With --extended
the controllers can do extended advertising, as those of Bluetooth 5, with --classic they are of both kinds, LE and classic.

With --of the board of FOLDER comes into the air of the board of OTHER: the controller at its first serial line is that of a phone
there.
"""
import asyncio, os, sys
from bumble import hci, ll
from bumble.controller import Controller
from bumble.core import PhysicalTransport
from bumble.link import LocalLink
from bumble.transport import open_transport
from bumble.transport.common import StreamPacketSink, StreamPacketSource
from dual import Dual

KIND = Dual if "--classic" in sys.argv else Controller
# The phone that has one address for ever.
KNOWN = "00:AA:02:00:01:00"


class Air(LocalLink):
    """The library's own names every sender by its random address; who advertises with the public one is then unknown to
    its peer. The connection knows which one it was made with."""

    def send_acl_data(self, sender_controller, destination_address, transport, data):
        if transport == PhysicalTransport.LE:
            for connection in sender_controller.le_connections.values():
                if connection.peer_address == destination_address:
                    receiver = self.find_le_controller(destination_address)
                    if receiver:
                        asyncio.get_running_loop().call_soon(
                            receiver.on_link_acl_data, connection.self_address, transport, data)
                    return
        super().send_acl_data(sender_controller, destination_address, transport, data)


class Phone(StreamPacketSource):
    """The controller of one connection."""
    count = 0

    def __init__(self, air, address=None):
        super().__init__()
        self.air, self.address = air, address

    def connection_made(self, transport):
        Phone.count += 1
        self.controller = KIND(f"phone{Phone.count}", host_source=self, host_sink=StreamPacketSink(transport),
                               link=self.air, public_address=self.address or f"00:AA:02:00:00:{Phone.count % 256:02X}")

    def connection_lost(self, exc):
        for connection in list(self.controller.le_connections.values()):
            # Out of range: the peer would notice by itself, after its time-out.
            connection.send_ll_control_pdu(ll.TerminateInd(hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR))
        if KIND is Dual:
            self.controller.vanish()
        self.air.remove_controller(self.controller)
        self.controller.host = None
        self.controller.link = None


async def come(folder, other):
    """Carries the bytes of the first serial line into the other board's air, until either ends."""
    line = await asyncio.open_unix_connection(f"{folder}/bluetooth.0")
    there = await asyncio.open_unix_connection(f"{other}/phone")
    print("open", flush=True)

    async def carry(reader, writer):
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()

    ways = [asyncio.ensure_future(carry(line[0], there[1])), asyncio.ensure_future(carry(there[0], line[1]))]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    os._exit(0)


async def main():
    folder = sys.argv[1]
    if "--of" in sys.argv:
        await come(folder, sys.argv[sys.argv.index("--of") + 1])
    # The library's controllers say that they can do privacy, and then do not tell of connections in the way that goes with it: Linux
    # takes a connection that it began for failed after four seconds, and never ends it.
    absent = hci.LeFeatureMask.LL_PRIVACY
    if "--extended" not in sys.argv:
        absent |= hci.LeFeatureMask.LE_EXTENDED_ADVERTISING | hci.LeFeatureMask.LE_PERIODIC_ADVERTISING
    Controller.le_features = Controller.le_features & ~absent
    air, lines = Air(), []
    for number in range(2):
        line = await open_transport(f"unix:{folder}/bluetooth.{number}")
        lines.append(line)
        KIND(f"board{number}", host_source=line.source, host_sink=line.sink, link=air,
             public_address=f"00:AA:01:00:00:0{number + 1}")
    loop = asyncio.get_running_loop()
    servers = [await loop.create_unix_server(lambda: Phone(air), f"{folder}/phone"),
               await loop.create_unix_server(lambda: Phone(air, KNOWN), f"{folder}/known")]
    print("open", flush=True)
    # The board's end is the end of everything.
    await asyncio.wait([line.source.terminated for line in lines], return_when=asyncio.FIRST_COMPLETED)
    for server in servers:
        server.close()
    os._exit(0)


asyncio.run(main())
