#!/usr/bin/env python3
"""Improv by its public client, to be put on another board that is near the first: improv.py SITE ADAPTER SSID WRONG RIGHT

SITE is a folder with py-improv-ble-client, bleak, bleak-retry-connector and what they need. Asks to be let in
and waits for that, is refused with the WRONG password, and prints the address where one goes on after the RIGHT one."""
import asyncio, sys

site, adapter, ssid, wrong, right = sys.argv[1:]
sys.path.insert(0, site)
from bleak import BleakScanner
from bleak.args.bluez import BlueZScannerArgs
from improv_ble_client import errors
from improv_ble_client.client import ImprovBLEClient, device_filter
from improv_ble_client.protocol import State


async def main():
    found = asyncio.get_running_loop().create_future()

    def seen(device, advertisement):
        if device_filter(advertisement) and not found.done():
            found.set_result((device, advertisement))

    async with BleakScanner(seen, bluez=BlueZScannerArgs(adapter=adapter)):
        device, advertisement = await asyncio.wait_for(found, 60)
    client = ImprovBLEClient(device, advertisement)
    needs = await client.need_authorization()
    print("needs a person:", needs, "can:", client.capabilities, flush=True)
    print(await client.get_device_info(), flush=True)
    print("hears", await client.scan_wifi(), flush=True)
    if needs:
        present = asyncio.Event()
        stop = await client.subscribe_state_updates(lambda state: present.set() if state == State.AUTHORIZED else None)
        print("waits", flush=True)
        await asyncio.wait_for(present.wait(), 120)
        stop()
        print("somebody is there", flush=True)
    try:
        await client.provision(ssid, wrong, None)
        sys.exit("joined with a wrong password")
    except errors.ProvisioningFailed as failed:
        print("refused:", failed.error, flush=True)
    # The client ends its connection after a refusal, in the background, and whatever is asked for until then ends with it. A person
    # types meanwhile.
    await asyncio.sleep(5)
    print("goes on at", await client.provision(ssid, right, lambda state: print("state", state, flush=True)), flush=True)


asyncio.run(main())
