"""A controller of both kinds, Bluetooth LE and classic, as most boards and all phones have one.

The library's own can make classic connections and pair by them, but says that it cannot, and knows neither inquiries, nor scans, nor
encryption, nor what Linux asks of such a controller when it starts.
"""
import asyncio
from bumble import hci
from bumble.controller import Controller
from bumble.core import PhysicalTransport

FEATURES = hci.LmpFeatureMask
INQUIRY, PAGE = 1, 2
# How long somebody who does not answer is called, in seconds: as controllers do where nobody says otherwise.
CALLING = 5.12
# Linux takes no more in one piece from a serial line.
PIECE = 1000

# What is answered to commands that change nothing here: what follows the status.
ANSWERED = {
    0x0408: b"",  # Create Connection Cancel
    0x0402: b"",  # Inquiry Cancel
    0x041A: b"",  # Remote Name Request Cancel
    0x080D: b"\0\0",  # Write Link Policy
    0x080F: b"",  # Write Default Link Policy
    0x0C05: b"",  # Set Event Filter
    0x0C12: b"\0\0",  # Delete Stored Link Key
    0x0C16: b"",  # Write Connection Accept Timeout
    0x0C18: b"",  # Write Page Timeout
    0x0C1B: b"\0\x08\x12\0",  # Read Page Scan Activity
    0x0C1C: b"",  # Write Page Scan Activity
    0x0C1E: b"",  # Write Inquiry Scan Activity
    0x0C20: b"",  # Write Authentication Enable
    0x0C25: b"\0\0",  # Read Voice Setting
    0x0C26: b"",  # Write Voice Setting
    0x0C37: b"\0\0",  # Write Link Supervision Timeout
    0x0C38: b"\1",  # Read Number of Supported IAC
    0x0C39: b"\1\x33\x8b\x9e",  # Read Current IAC LAP
    0x0C3A: b"",  # Write Current IAC LAP
    0x0C43: b"",  # Write Inquiry Scan Type
    0x0C45: b"",  # Write Inquiry Mode
    0x0C46: b"\0",  # Read Page Scan Type
    0x0C47: b"",  # Write Page Scan Type
    0x0C58: b"\0",  # Read Inquiry Response Transmit Power Level
    0x0C7A: b"",  # Write Secure Connections Host Support
}


class Dual(Controller):
    lmp_features = (Controller.lmp_features & ~FEATURES.BR_EDR_NOT_SUPPORTED) | (
        FEATURES.ENCRYPTION | FEATURES.LMP_3_SLOT_PACKETS | FEATURES.LMP_5_SLOT_PACKETS | FEATURES.RSSI_WITH_INQUIRY_RESULTS
        | FEATURES.SECURE_SIMPLE_PAIRING_CONTROLLER_SUPPORT | FEATURES.SECURE_SIMPLE_PAIRING_HOST_SUPPORT
        | FEATURES.LE_SUPPORTED_HOST)
    acl_data_packet_length = PIECE
    total_num_acl_data_packets = 8

    def on_hci_command_packet(self, command):
        code = command.op_code
        own = {0x0401: self.inquire, 0x0405: self.call, 0x0411: self.authenticate, 0x0413: self.encrypt, 0x0419: self.ask_name}
        if code in own:
            return own[code](command)
        if code in ANSWERED:
            return self.answer(code, ANSWERED[code])
        if code == 0x1408:  # Read Encryption Key Size
            return self.answer(code, command.parameters[:2] + b"\x10")
        if code == 0x041F:  # Read Clock Offset
            return self._send_hci_command_status(hci.HCI_ErrorCode.UNKNOWN_HCI_COMMAND_ERROR, code)
        super().on_hci_command_packet(command)

    def answer(self, code, rest):
        body = b"\1" + code.to_bytes(2, "little") + b"\0" + rest
        asyncio.get_running_loop().call_soon(self.host.on_packet, bytes([4, 0x0E, len(body)]) + body)

    def hears(self, address, scan):
        """The one at this address, if it listens."""
        peer = self.link.find_classic_controller(address)
        return peer if peer and peer is not self and peer.classic_scan_enable & scan else None

    def inquire(self, command):
        self._send_hci_command_status(hci.HCI_COMMAND_STATUS_PENDING, command.op_code)

        def found():
            for peer in self.link.controllers if self.link else ():
                if peer is not self and peer.classic_scan_enable & INQUIRY:
                    self.send_hci_packet(hci.HCI_Inquiry_Result_With_RSSI_Event(
                        [peer.public_address], [1], [0], [0], [0], [-50]))
            self.send_hci_packet(hci.HCI_Inquiry_Complete_Event(status=0))

        asyncio.get_running_loop().call_later(1, found)

    def call(self, command):
        self.page(command, super().on_hci_create_connection_command, lambda: self.on_classic_connection_complete(
            command.bd_addr, hci.HCI_ErrorCode.PAGE_TIMEOUT_ERROR))

    def ask_name(self, command):
        self.page(command, super().on_hci_remote_name_request_command, lambda: self.send_hci_packet(
            hci.HCI_Remote_Name_Request_Complete_Event(
                status=hci.HCI_ErrorCode.PAGE_TIMEOUT_ERROR, bd_addr=command.bd_addr, remote_name=bytes(248))))

    def page(self, command, answered, given_up):
        """Calls: who is connected or listens answers at once, else it is given up in a while."""
        connected = lambda: command.bd_addr in self.classic_connections
        if connected() or self.hears(command.bd_addr, PAGE):
            return answered(command)
        self._send_hci_command_status(hci.HCI_COMMAND_STATUS_PENDING, command.op_code)
        # Who has called meanwhile is connected, and no failure is told any more.
        asyncio.get_running_loop().call_later(CALLING, lambda: connected() or self.host is None or given_up())

    def authenticate(self, command):
        """By the key of before, if there is one: the library's own pairs anew each time."""
        connection = self.find_classic_connection_by_handle(command.connection_handle)
        if not connection:
            return self._send_hci_command_status(hci.HCI_ErrorCode.UNKNOWN_CONNECTION_IDENTIFIER_ERROR, command.op_code)
        self._send_hci_command_status(hci.HCI_COMMAND_STATUS_PENDING, command.op_code)
        self.send_hci_packet(hci.HCI_Link_Key_Request_Event(bd_addr=connection.peer_address))

    def encrypt(self, command):
        connection = self.find_classic_connection_by_handle(command.connection_handle)
        self._send_hci_command_status(hci.HCI_COMMAND_STATUS_PENDING, command.op_code)
        peer = connection and self.link.find_classic_controller(connection.peer_address)
        other = peer and peer.classic_connections.get(self.public_address)
        for controller, one in ((self, connection), (peer, other)):
            if one:
                controller.send_hci_packet(hci.HCI_Encryption_Change_Event(
                    status=0, connection_handle=one.handle, encryption_enabled=2 if command.encryption_enable else 0))

    def on_link_acl_data(self, sender_address, transport, data):
        connection = self.classic_connections.get(sender_address)
        if transport == PhysicalTransport.LE or not connection:
            return super().on_link_acl_data(sender_address, transport, data)
        for at in range(0, len(data), PIECE):
            piece = data[at:at + PIECE]
            self.send_hci_packet(hci.HCI_AclDataPacket(connection.handle, 1 if at else 2, 0, len(piece), piece))

    def vanish(self):
        """Out of range of everybody."""
        for address in list(self.classic_connections):
            peer = self.link.find_classic_controller(address)
            if peer and self.public_address in peer.classic_connections:
                peer.on_classic_disconnected(self.public_address, hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR)
