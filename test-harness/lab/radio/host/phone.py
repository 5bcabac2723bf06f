#!/usr/bin/env python3
"""A phone with Bluetooth LE: what one does with an app that lists everything.

  phone.py FOLDER scan [SECONDS]              who advertises: address, name, services
  phone.py FOLDER list SERVICE                connects to who advertises this service, prints every characteristic and value
  phone.py FOLDER read SERVICE CHARACTERISTIC
  phone.py FOLDER write SERVICE CHARACTERISTIC FILE     the bytes of a file, with response

Everything else is a script of its own that imports `Phone`.
"""
import asyncio, sys
from bumble.core import UUID, AdvertisingData
from bumble.device import Device, Peer
from bumble.gatt import Characteristic
from bumble.hci import Address
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.transport import open_transport

SERVICES = (AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS,
            AdvertisingData.INCOMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS,
            AdvertisingData.COMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS,
            AdvertisingData.INCOMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS)


def services(advertisement):
    """The services that an advertisement names, in lower case."""
    return [uuid.to_hex_str("-").lower() for kind in SERVICES for uuid in advertisement.data.get(kind) or []]


class Person(PairingDelegate):
    """Who holds the phone: agrees to everything. Replace the methods for somebody else."""

    async def confirm(self, auto=False):
        return True

    async def compare_numbers(self, number, digits):
        return True


class Phone:
    """A phone in the air of the board whose folder this is: `async with Phone(folder) as phone`."""

    def __init__(self, folder, address="F0:F1:F2:F3:F4:F5", person=None):
        self.folder, self.address, self.person = folder, address, person or Person(PairingDelegate.NO_OUTPUT_NO_INPUT)

    async def __aenter__(self):
        self.transport = await open_transport(f"unix:{self.folder}/phone")
        self.device = Device.with_hci("phone", Address(self.address), self.transport.source, self.transport.sink)
        self.device.pairing_config_factory = lambda connection: PairingConfig(
            sc=True, mitm=self.person.io_capability != PairingDelegate.NO_OUTPUT_NO_INPUT, bonding=True, delegate=self.person)
        await self.device.power_on()
        return self

    async def __aexit__(self, *_):
        await self.transport.close()

    async def find(self, wanted, limit=60):
        """The first advertisement for which `wanted` holds."""
        found = asyncio.get_running_loop().create_future()

        def seen(advertisement):
            if not found.done() and wanted(advertisement):
                found.set_result(advertisement)

        self.device.on("advertisement", seen)
        await self.device.start_scanning(active=True)
        try:
            return await asyncio.wait_for(found, limit)
        finally:
            self.device.remove_listener("advertisement", seen)
            await self.device.stop_scanning()

    async def connect(self, service, limit=60):
        """Connects to who advertises this service; its peer with all services and characteristics discovered."""
        advertisement = await self.find(lambda one: service.lower() in services(one), limit)
        connection = await asyncio.wait_for(self.device.connect(advertisement.address), limit)
        peer = Peer(connection)
        await peer.request_mtu(247)
        await peer.discover_services()
        for one in peer.services:
            await one.discover_characteristics()
        return peer


def characteristic(peer, uuid):
    """A characteristic of a peer, wherever it is."""
    return next(one for service in peer.services for one in service.characteristics if one.uuid == UUID(uuid))


async def main():
    folder, operation, *rest = sys.argv[1:]
    async with Phone(folder) as phone:
        if operation == "scan":
            heard = {}
            phone.device.on("advertisement", lambda one: heard.__setitem__(str(one.address), one))
            await phone.device.start_scanning(active=True)
            await asyncio.sleep(float(rest[0]) if rest else 3)
            for address, one in heard.items():
                print(address, one.data.get(AdvertisingData.COMPLETE_LOCAL_NAME), *services(one))
        elif operation == "list":
            peer = await phone.connect(rest[0])
            for service in peer.services:
                print("service", service.uuid)
                for one in service.characteristics:
                    try:
                        value = await one.read_value() if one.properties & Characteristic.Properties.READ else None
                    except Exception as error:
                        value = error
                    print("  ", one.uuid, one.properties, repr(value))
        elif operation == "read":
            sys.stdout.buffer.write(await characteristic(await phone.connect(rest[0]), rest[1]).read_value())
        elif operation == "write":
            with open(rest[2], "rb") as file:
                await characteristic(await phone.connect(rest[0]), rest[1]).write_value(file.read(), with_response=True)
        else:
            sys.exit(__doc__)


if __name__ == "__main__":
    asyncio.run(main())
