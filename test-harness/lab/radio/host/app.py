#!/usr/bin/env python3
"""A phone app for provisioning (docs/bluetooth.md), with Python's own cryptography: another implementation than the agent's.

  app.py FOLDER show                           what is advertised, and every value that can be read
  app.py FOLDER give PASSWORD WORDS NAME=VALUE…  as existing apps: each value sealed, then exit_provisioning
  app.py FOLDER talk PASSWORD WORDS TAG=VALUE…   the authenticated service: one message, whose answer is opened
  app.py FOLDER take PASSWORD ID SECRET ADDRESS  gives another identity by both to a device that keeps its own
  app.py FOLDER nonsense                       writes what is no value to everything; nothing may come of it
  app.py FOLDER pair PASSWORD yes|no           unlocks pairing or not, then pairs; 0 when that ended as it should

`give` and `talk` end when the phone is told WORDS among the errors, or, where WORDS are `online`, that the device is; it fails when it is
not in two minutes. After `pair` the board knows a phone that forgets its keys when the script ends: `bluetoothctl remove
F0:F1:F2:F3:F4:F5` on the board before the next.
"""
import asyncio, hashlib, os, sys
from bumble.pairing import PairingDelegate
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from phone import Phone, characteristic

SERVICE = "51d984c2-43bd-5228-a3ac-a3eca992e8b3"
WRITTEN = {
    "ssid": "37a720ee-86e5-55a8-b876-d200fb7e4f72", "psk": "cd5b8fb9-4006-56e5-a78b-044cf6ae48cb",
    "id": "c2be234e-1975-5e85-b97b-bb30c3bf43d2", "secret": "d0029d11-a8c2-5231-8fcc-83de66952f01",
    "api_key": "f30e26d6-155c-5a24-bd7f-6b1a40e463da", "app_address": "444ee2b0-b3fa-5d74-bb35-f194642188b3",
    "exit_provisioning": "10cd57f1-01bb-5937-89fb-64cc40be53d2", "unlock_pairing": "96a4bebb-a361-5c73-9d76-45a0faa9d4a0"}
READ = {
    "pub_key": "70bc8310-68ca-5011-9282-72f201293dfb", "status": "ea8a8689-548f-5941-829b-82aeff8095b7",
    "networks": "61eba4df-b901-502c-b278-fadf9d52802b", "errors": "75f64044-b604-5547-a723-7f8618255ddc",
    "manufacturer": "49d34f00-cf76-55fa-9f8d-23f6836136ab", "model": "e7e1ac15-fb59-54ab-8538-72008ad4ee43",
    "fragment_id": "d2eae9e8-30bc-5fdf-bd9f-bd4e8a4017d2", "agent_version": "6e164616-ee96-5835-b199-115ddbcd885f"}
CHANNEL = {
    "hello": "2c4cd38c-f321-5322-9cfb-53a6eb9ab017", "begin": "00804e93-5c8f-5ba4-85d7-186228a98bd2",
    "message": "c51a10ec-1954-51b8-8686-1f3cc7dfe5bc", "answer": "47aa1909-57a2-5971-9300-cfd512b17f83"}


class Person(PairingDelegate):
    """Compares numbers and agrees."""

    async def compare_numbers(self, number, digits):
        print("compares", number, flush=True)
        return True


class App:
    def __init__(self, peer):
        # All that was told, because one notification may take back the one before it in the same moment.
        self.peer, self.told = peer, {}

    def __getitem__(self, name):
        return characteristic(self.peer, {**WRITTEN, **READ, **CHANNEL}[name])

    async def listen(self, *names):
        for name in names:
            await self[name].subscribe(lambda value, name=name: self.hear(name, bytes(value)))

    def hear(self, name, value):
        self.told.setdefault(name, []).append(value)
        print("told", name, value, flush=True)

    async def until_told(self, words):
        """Waits for these words in a notification."""
        online = words == "online"
        for _ in range(1200):
            told = self.told.get("status" if online else "errors", [])
            if any(value and value[0] & 2 if online else words.encode() in value for value in told):
                return print("at last", words, flush=True)
            await asyncio.sleep(0.1)
        sys.exit(f"never told {words}: {self.told}")

    async def write(self, name, value):
        """What the phone hears of its write. For sealed values that is always yes: docs/bluetooth.md says why."""
        try:
            await self[name].write_value(value, with_response=True)
            return "taken"
        except Exception as error:
            return f"refused: {error!r}"

    async def show(self):
        for name in READ:
            print("reads", name, await self[name].read_value() if name != "pub_key" else "…", flush=True)

    async def seal(self, password):
        key = serialization.load_der_public_key(bytes(await self["pub_key"].read_value()))
        assert key.key_size == 2048
        oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
        return lambda value: key.encrypt(f"{password}:{value}".encode(), oaep)


async def show(app):
    print("mtu", app.peer.connection.att_mtu, "key", len(await app["pub_key"].read_value()), flush=True)
    await app.show()


async def give(app, password, words, *values):
    await app.listen("status", "errors")
    seal = await app.seal(password)
    for name, value in [value.split("=", 1) for value in values] + [("exit_provisioning", "1")]:
        print(name, await app.write(name, seal(value)), flush=True)
    await app.until_told(words)


async def talk(app, password, words, *values):
    await app.listen("status", "errors")
    await say(app, password, *values)
    await app.until_told(words)


async def say(app, password, *values):
    """One conversation with one message, and the same once more."""
    await app.listen("answer")
    hello = bytes(await app["hello"].read_value())
    device, salt, own = hello[1:33], hello[33:], X25519PrivateKey.generate()
    phone = own.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    stretched = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 20000, 32)
    shared = own.exchange(X25519PublicKey.from_public_bytes(device))
    key = lambda to: AESGCM(HKDF(hashes.SHA256(), 32, salt=stretched, info=b"provisioning 1 to " + to + device + phone).derive(shared))
    up, down, nonce = key(b"device"), key(b"phone"), lambda counter: bytes(4) + counter.to_bytes(8, "big")
    print("begin", await app.write("begin", b"\1" + phone + up.encrypt(nonce(0), b"", b"\1" + phone)), flush=True)
    fields = [(int(tag), value.encode()) for tag, value in (value.split("=", 1) for value in values)]
    text = b"".join(bytes([tag]) + len(value).to_bytes(2, "big") + value for tag, value in fields)
    head = b"\1" + (1).to_bytes(8, "big")
    message = head + up.encrypt(nonce(1), text, head)
    print("message", await app.write("message", message), flush=True)
    # The first answer is to the beginning.
    while len(app.told.get("answer", [])) < 2:
        await asyncio.sleep(0.1)
    answer = app.told["answer"][1]
    said = down.decrypt(nonce(int.from_bytes(answer[1:9], "big")), answer[9:], answer[:9])
    print("verdict", said[0], "message", int.from_bytes(said[1:9], "big"), said[9:].decode(), flush=True)
    print("the same again", await app.write("message", message), flush=True)


async def take(app, password, identity, secret, address):
    words = "this device has an identity and keeps it"
    await app.listen("errors")
    seal = await app.seal(password)
    for name, value in [("app_address", address), ("id", identity), ("secret", secret), ("exit_provisioning", "1")]:
        print(name, await app.write(name, seal(value)), flush=True)
    await app.until_told(words)
    print("told in words", flush=True)
    await say(app, password, f"4={address}", f"5={identity}", f"6={secret}")


async def nonsense(app):
    before = [bytes(await app[name].read_value()) for name in ("status", "networks", "fragment_id")]
    for name in [*WRITTEN, "begin", "message"]:
        for value in (b"", b"evil", b"\0" * 256, os.urandom(256), os.urandom(512)):
            heard = await app.write(name, value)
            assert name in WRITTEN or heard.startswith("refused"), (name, heard)
    assert before == [bytes(await app[name].read_value()) for name in ("status", "networks", "fragment_id")]
    print("nothing came of it", flush=True)


async def pair(app, password, unlock):
    if unlock == "yes":
        await app.write("unlock_pairing", (await app.seal(password))("1"))
        await asyncio.sleep(2)
    try:
        await asyncio.wait_for(app.peer.connection.pair(), 30)
        result = "yes"
    except Exception as error:
        print("not paired:", error, flush=True)
        result = "no"
    assert result == unlock, f"pairing ended with {result}"
    print("as it should be", flush=True)


async def main():
    folder, operation, *rest = sys.argv[1:]
    person = Person(PairingDelegate.DISPLAY_OUTPUT_AND_YES_NO_INPUT)
    async with Phone(folder, person=person) as phone:
        app = App(await phone.connect(SERVICE))
        operations = {"show": show, "give": give, "talk": talk, "nonsense": nonsense, "take": take, "pair": pair}
        await operations[operation](app, *rest)
        # The board may have gone first: its door closes after a success.
        await asyncio.wait_for(app.peer.connection.disconnect(), 10)


if __name__ == "__main__":
    asyncio.run(main())
