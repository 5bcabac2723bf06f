#!/usr/bin/env python3
"""Improv by its public client, to be put on a board that has a second adapter: improv.py SITE ADAPTER SSID PASSWORD

SITE is a folder with py-improv-ble-client, bleak, bleak-retry-connector and what they need. Prints the address where one goes on;
ends with an error when the network was not joined."""
import asyncio, sys

site, adapter, ssid, password = sys.argv[1:]
sys.path.insert(0, site)
from bleak import BleakScanner
from bleak.args.bluez import BlueZScannerArgs
from improv_ble_client import errors
from improv_ble_client.client import ImprovBLEClient, device_filter


async def main():
    found = asyncio.get_running_loop().create_future()

    def seen(device, advertisement):
        if device_filter(advertisement) and not found.done():
            found.set_result((device, advertisement))

    async with BleakScanner(seen, bluez=BlueZScannerArgs(adapter=adapter)):
        device, advertisement = await asyncio.wait_for(found, 60)
    client = ImprovBLEClient(device, advertisement)
    print("needs a person:", await client.need_authorization(), "can:", client.capabilities, flush=True)
    print(await client.get_device_info(), flush=True)
    print(await client.scan_wifi(), flush=True)
    try:
        print("goes on at", await client.provision(ssid, password, lambda state: print("state", state, flush=True)), flush=True)
    except errors.ProvisioningFailed as failed:
        sys.exit(f"not joined: {failed}")


asyncio.run(main())
