"""A mail server that prints each mail it takes as a line of JSON: {"to": [...], "from": ..., "data": ...}.

Usage: server.py SECURITY CERTIFICATE KEY PASSWORD      SECURITY is none, starttls or tls; without a password: no login

The first line is its port. It ends with its standard input. Addresses beginning with `full` are refused for now, those
beginning with `gone` for ever.
"""

import asyncio
import json
import logging
import ssl
import sys
import warnings

from aiosmtpd.smtp import SMTP, AuthResult


# It is right that it asks for no second TLS within TLS, and that clients hang up.
logging.getLogger("mail.log").setLevel(logging.CRITICAL)
warnings.filterwarnings("ignore", module="aiosmtpd")


class Box:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("full"):
            return "452 4.2.2 mailbox full"
        if address.startswith("gone"):
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        mail = {
            "to": envelope.rcpt_tos, "from": envelope.mail_from, "data": envelope.content.decode(),
            "tls": session.ssl is not None or server.transport.get_extra_info("sslcontext") is not None, "user": getattr(session.auth_data, "login", b"").decode(),
        }
        print(json.dumps(mail), flush=True)
        return "250 OK"


async def main(security, certificate, key, password):
    context = None
    if security != "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)

    def known(server, session, envelope, mechanism, data):
        return AuthResult(success=data.password == password.encode(), handled=False, auth_data=data)

    def talk():
        # With TLS from the first byte there is nothing left to ask for.
        later = security == "starttls"
        return SMTP(
            Box(), tls_context=context if later else None, require_starttls=later, auth_required=bool(password),
            auth_require_tls=later, authenticator=known, enable_SMTPUTF8=True,
        )

    loop = asyncio.get_running_loop()
    server = await loop.create_server(talk, "127.0.0.1", 0, ssl=context if security == "tls" else None)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main(*sys.argv[1:]))
